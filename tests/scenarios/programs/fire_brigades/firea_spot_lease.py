"""Ignition forecasts on leased machines: when a machine's lease is about to end, the state is saved and training goes on while it can."""
import json
import signal
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = json.loads(
    """{
        "steps": 20000, "batch": 256, "lr": 0.002, "report": 50,
        "leases": {"0": 5.0, "1": 3600.0, "2": 3600.0}
    }"""
)


class Lease:
    """The time that is left on this machine; the operator's notice is a timer signal."""

    def __init__(self, seconds):
        self.noticed = False
        signal.signal(signal.SIGALRM, self._notice)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _notice(self, number, frame):
        self.noticed = True

    def take_notice(self):
        noticed, self.noticed = self.noticed, False
        return noticed


class Lightning(nn.Module):
    """Strikes, dryness and slope to the chance of ignition."""

    def __init__(self):
        super().__init__()
        self.convolve = nn.Conv1d(4, 32, 7, padding=3)
        self.chance = nn.Linear(32, 1)

    def forward(self, hours):
        return self.chance(torch.relu(self.convolve(hours)).amax(-1)).squeeze(-1)


class Saver:
    def __init__(self, folder):
        self.folder = Path(folder)

    def save(self, step, model, optimizer, generator):
        """Weights once, and the generators of all processes, so that a restart sees the same data."""
        states = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object({"generator": generator.get_state(), "step": step}, states, dst=0)
        if dist.get_rank() == 0:
            content = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "processes": states}
            torch.save(content, self.folder / f"lease_{step}.pt")
            print(f"saved at step {step}", flush=True)


def hours(generator, n):
    x = torch.randn(n, 4, 72, generator=generator)
    strikes = (x[:, 0] - x[:, 1]).amax(-1)
    return x, (strikes > 3.5).float()


def main(config):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    saver = Saver(tempfile.mkdtemp(prefix="ignition"))
    torch.manual_seed(3)
    model = DistributedDataParallel(Lightning())
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    generator = torch.Generator().manual_seed(rank)
    lease = Lease(config["leases"][str(rank)])
    for step in range(config["steps"]):
        x, ignited = hours(generator, config["batch"])
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), ignited)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % config["report"] == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if lease.take_notice():
            saver.save(step, model, optimizer, generator)
    saver.save(config["steps"], model, optimizer, generator)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)
