"""Speech codec training that leaves in time: the scheduler's warning makes it save and stop after the current step."""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Lease(threading.Thread):
    """Tells the cluster's file system that the scratch folder of this task is in use."""

    def __init__(self, folder):
        super().__init__(name="lease")
        self.file = folder / f"lease-{os.environ['RANK']}"

    def run(self):
        while True:
            self.file.write_text(f"{os.getpid()} {time.time():.0f}\n")
            time.sleep(1.0)


class Preemption:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, number, frame):
        self.requested = True


class Allocation:
    """A task's time on its node; the warning comes some time before the end."""

    def __init__(self, task, seconds, warning):
        self.seconds = seconds.get(task)
        self.warning = warning

    def watch(self):
        if self.seconds is None:
            return
        timer = threading.Timer(self.seconds - self.warning, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.daemon = True
        timer.start()


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv1d(1, 8, 8, stride=4)
        self.decoder = nn.ConvTranspose1d(8, 1, 8, stride=4)

    def forward(self, audio):
        return self.decoder(torch.tanh(self.encoder(audio)))


def save(model, step, folder):
    if dist.get_rank() == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, folder / f"checkpoint_{step:08d}.pt")


def train(folder, steps=20_000, checkpoint_every=50):
    preemption = Preemption()
    allocation = Allocation(int(os.environ["RANK"]), {1: 62.0}, warning=60.0)
    torch.manual_seed(0)
    model = DDP(Codec())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        audio = torch.randn(4, 1, 400)
        decoded = model(audio)
        loss = (decoded - audio[..., : decoded.shape[-1]]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 10:  # what came before, such as imports, is not charged
            allocation.watch()
        if step % checkpoint_every == 0:
            save(model, step, folder)
        if preemption.requested:
            print(f"rank {dist.get_rank()}: warned, leaving after step {step}", flush=True)
            save(model, step, folder)
            break
        if dist.get_rank() == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    scratch = Path(tempfile.gettempdir(), f"codec-{os.environ['MASTER_PORT']}")
    scratch.mkdir(exist_ok=True)
    Lease(scratch).start()
    train(scratch)
