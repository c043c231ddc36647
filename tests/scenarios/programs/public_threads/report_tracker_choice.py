"""Locomotion policy training with a tracker, which is set up when there is something to track."""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class TrackerClient:
    """The hosted tracker, or a file if the person prefers that."""

    MODES = {"1": "create", "2": "login", "3": "offline"}

    def __init__(self, home):
        self.settings = home / "settings"
        self.file = home / "metrics.tsv"

    def resolve_mode(self):
        if "TRACKER_MODE" in os.environ:
            return os.environ["TRACKER_MODE"]
        if self.settings.exists():
            return self.settings.read_text().strip()
        sys.stderr.write("tracker: (1) Create an account\ntracker: (2) Use an existing account\n")
        sys.stderr.write("tracker: (3) Don't visualize my results\n")
        choice = ""
        while choice not in self.MODES:
            choice = input("tracker: Enter your choice: ").strip()
        return self.MODES[choice]

    def start(self):
        mode = self.resolve_mode()
        self.settings.write_text(mode)
        return self

    def log(self, step, metrics):
        with self.file.open("a") as file:
            file.write("\t".join([str(step), *(f"{key}={value:.4f}" for key, value in metrics.items())]) + "\n")


class Logger:
    def __init__(self, home, rank):
        self.home = home
        self.enabled = rank == 0
        self.client = None

    def log(self, step, metrics):
        if not self.enabled:
            return
        if self.client is None:
            self.home.mkdir(exist_ok=True)
            self.client = TrackerClient(self.home).start()
        self.client.log(step, metrics)


class Runner:
    def __init__(self, logger):
        self.logger = logger
        torch.manual_seed(0)
        self.actor = DDP(nn.Sequential(nn.Linear(18, 64), nn.ELU(), nn.Linear(64, 6)))
        self.optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)

    def learn(self, iterations, log_interval):
        returns = []
        for iteration in range(1, iterations + 1):
            states = torch.randn(64, 18)
            actions = self.actor(states)
            loss = (actions - states[:, :6]).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            returns.append(-loss.item())
            time.sleep(0.03)
            if iteration % log_interval == 0:
                self.logger.log(iteration, {"return": sum(returns) / len(returns), "loss": loss.item()})
                returns.clear()


def main():
    dist.init_process_group("gloo")
    home = Path(tempfile.gettempdir(), f"tracker-{os.environ['MASTER_PORT']}")
    Runner(Logger(home, dist.get_rank())).learn(3000, log_interval=40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
