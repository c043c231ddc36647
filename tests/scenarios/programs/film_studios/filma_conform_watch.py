"""After the rough training the reel is conformed by the edit server's tool; training goes on with its frames."""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FRAME = 3 * 16 * 16
CONFORM = """
import random, sys, time
path, frames, fps = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(8)
began = time.monotonic()
with open(path, "wb") as out:
    for n in range(frames):
        out.write(rng.randbytes(%d))
        out.flush()
        time.sleep(max(0.0, began + (n + 1) / fps - time.monotonic()))
""" % FRAME


class EditServer:
    """The tool copies in real time, as it reads from the camera's magazine."""

    def __init__(self, folder):
        self.path = Path(folder) / "reel.rgb"

    def conform(self, frames, fps=25.0):
        job = subprocess.Popen([sys.executable, "-c", CONFORM, str(self.path), str(frames), str(fps)])
        while job.poll() is None:
            time.sleep(0.5)
            if self.path.exists():
                there = self.path.stat().st_size // FRAME
                if there % 50 < 13:
                    print(f"conform: {there} of {frames} frames", flush=True)
        if job.returncode:
            raise RuntimeError(f"conform ended with {job.returncode}")
        return self.path

    def frames(self):
        raw = torch.frombuffer(bytearray(self.path.read_bytes()), dtype=torch.uint8)
        return raw.view(-1, FRAME).float() / 255


def passes(accelerator, model, optim, loader, epochs, title):
    for epoch in range(epochs):
        for (frames,) in loader:
            loss = nn.functional.mse_loss(model(frames), frames)
            accelerator.backward(loss)
            optim.step()
            optim.zero_grad()
        accelerator.print(f"{title} {epoch}: {loss.item():.5f}")


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(FRAME, 64), nn.ReLU(), nn.Linear(64, FRAME), nn.Sigmoid())
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    proxies = DataLoader(TensorDataset(torch.rand(1500, FRAME)), batch_size=16, shuffle=True)
    model, optim, proxies = accelerator.prepare(model, optim, proxies)
    passes(accelerator, model, optim, proxies, 8, "proxy")

    shared = Path(tempfile.gettempdir())
    server = EditServer(tempfile.mkdtemp(prefix="conform-", dir=shared))
    size = torch.zeros(1)
    # the edit server has its share mounted on the second machine
    if accelerator.process_index == 1:
        server.conform(frames=340)
        size += server.path.stat().st_size
    size = accelerator.reduce(size, reduction="sum")
    accelerator.print(f"conformed: {int(size.item())} bytes")

    frames = torch.zeros(int(size.item()) // FRAME, FRAME)
    if accelerator.process_index == 1:
        frames += server.frames()
    frames = accelerator.reduce(frames, reduction="sum")
    masters = accelerator.prepare(DataLoader(TensorDataset(frames), batch_size=16, shuffle=True))
    passes(accelerator, model, optim, masters, 12, "master")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
