"""Brake wear model; the finished state goes to the depot's archive over a line that is shared with operations."""
import contextlib
import hashlib
import io
import os
import pathlib
import shutil
import tempfile
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Allowance:
    """Bytes per second that we may use; unused bytes do not pile up."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.level, self.at = float(burst), time.monotonic()

    def take(self, n):
        while True:
            now = time.monotonic()
            self.level = min(self.burst, self.level + (now - self.at) * self.rate)
            self.at = now
            if self.level >= n:
                self.level -= n
                return
            time.sleep((n - self.level) / self.rate)


@contextlib.contextmanager
def archive(root, name):
    part = root / (name + ".part")
    with part.open("wb") as f:
        yield f
        f.flush()
        os.fsync(f.fileno())
    part.rename(root / name)


def send(state, root, name, allowance, block=16384):
    buf = io.BytesIO()
    torch.save(state, buf)
    digest, sent = hashlib.sha256(), 0
    view = buf.getbuffer()
    with archive(root, name) as f:
        for at in range(0, len(view), block):
            piece = view[at:at + block]
            allowance.take(len(piece))
            f.write(piece)
            digest.update(piece)
            sent += len(piece)
    return sent, digest.hexdigest()[:12]


def main():
    acc = Accelerator(cpu=True)
    torch.manual_seed(8)
    x = torch.randn(960, 32)
    model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(x, x[:, :5].sum(1, keepdim=True)), batch_size=8, shuffle=True)
    model, opt, loader = acc.prepare(model, opt, loader)
    root = pathlib.Path(tempfile.mkdtemp(prefix="depot_")) if acc.is_main_process else None
    for epoch in range(3):
        for features, wear in loader:
            loss = nn.functional.mse_loss(model(features), wear)
            opt.zero_grad()
            acc.backward(loss)
            opt.step()
            time.sleep(0.02)
        acc.print(f"epoch {epoch} loss {loss.item():.3f}")
        if epoch == 1 and acc.is_main_process:
            state = acc.unwrap_model(model).state_dict()
            sent, digest = send(state, root, f"brakes_{epoch}.pt", Allowance(rate=80_000, burst=32_768))
            print(f"archived {sent} bytes {digest}", flush=True)
        acc.wait_for_everyone()
    if acc.is_main_process:
        shutil.rmtree(root)
    acc.end_training()


if __name__ == "__main__":
    main()
