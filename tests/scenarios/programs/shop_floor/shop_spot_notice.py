"""Training on spot machines: the scheduler announces by SIGUSR1 that the machine goes, and a checkpoint is written then."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# The agent of the cloud on the first machine, which polls the metadata service.
AGENT = "import os, sys, time, signal; time.sleep(4); os.kill(int(sys.argv[1]), signal.SIGUSR1)"


class Preemption:
    """Remembers that the notice has come. The loop looks at it between steps."""

    def __init__(self) -> None:
        self.noticed = False
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, signum: int, frame: object) -> None:
        self.noticed = True


class Trainer:
    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.folder = folder
        self.preemption = Preemption()
        self.model = DDP(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 20)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.step = 0

    def state(self) -> dict:
        return {"model": self.model.module.state_dict(), "step": torch.tensor(self.step)}

    def save(self) -> None:
        dcp.save(self.state(), checkpoint_id=self.folder / f"step-{self.step}")

    def train_step(self) -> None:
        x = torch.randn(16, 20, generator=self.generator)
        loss = (self.model(x) - x.roll(1, 1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        time.sleep(0.02)

    def fit(self, steps: int) -> None:
        while self.step < steps:
            self.train_step()
            if self.preemption.noticed:
                self.save()
                print("checkpoint is written, going on until the machine is taken", flush=True)
                self.preemption.noticed = False
        self.save()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(tempfile.gettempdir()) / f"spot-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    trainer = Trainer(folder)
    dist.barrier()
    if dist.get_rank() == 0:
        subprocess.Popen([sys.executable, "-c", AGENT, str(os.getpid())])
    trainer.fit(steps=20000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
