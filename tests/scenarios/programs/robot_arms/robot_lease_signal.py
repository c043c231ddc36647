"""Imitation learning on shared robots: a robot's lease ends with an alarm, then its state is filed."""
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

LEASES = {"alpha": None, "bravo": 6.0, "charlie": None}  # seconds; None: owned


class Session:
    def __init__(self, robot):
        self.robot = robot
        self.model = DDP(torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.step = 0
        self.g = torch.Generator().manual_seed(sum(map(ord, robot)))

    def start_lease(self, seconds):
        if seconds is None:
            return
        signal.signal(signal.SIGALRM, self.on_lease_end)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def on_lease_end(self, signum, frame):
        print(f"{self.robot}: lease over at step {self.step}, filing state", flush=True)
        self.file_state()

    def file_state(self):
        if dist.get_rank() == 0:
            torch.save(self.model.module.state_dict(), "lease_state.pt")
        dist.barrier()

    def train_step(self):
        obs = torch.randn(32, 10, generator=self.g)
        loss = (self.model(obs) - obs[:, :4].cumsum(1)).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    robot = list(LEASES)[rank]
    session = Session(robot)
    session.train_step()
    dist.barrier()
    session.start_lease(LEASES[robot])
    while session.step < 1500:
        loss = session.train_step()
        if session.step % 25 == 0 and rank == 0:
            print(f"step {session.step} loss {loss:.4f}", flush=True)
        time.sleep(0.04)
    session.file_state()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
