"""Evacuation times of storeys (accelerate); the main process packs the results of every epoch for the fire brigade."""
import subprocess
import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PACKER = """
import hashlib, sys, time
for line in sys.stdin:
    name, size = line.split()
    digest = hashlib.sha256(name.encode())
    for _ in range(int(size)):
        digest.update(digest.digest() * 4096)
        time.sleep(0.05)
    print(name, digest.hexdigest(), flush=True)
"""


class Packer:
    """Context around the packing tool, one plan of a storey after the other."""

    def __enter__(self):
        self.tool = subprocess.Popen(
            [sys.executable, "-c", PACKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def pack(self, name, size):
        self.tool.stdin.write(f"{name} {size}\n")
        self.tool.stdin.flush()
        return self.tool.stdout.readline().split()[1]

    def __exit__(self, *exc):
        self.tool.stdin.close()
        self.tool.wait()


def export(state, storeys=22):
    digests = {}
    with Packer() as packer:
        for storey in range(storeys):
            digests[storey] = packer.pack(f"storey-{storey}-{len(state)}", 12)
    return digests


def data(size=1536):
    generator = torch.Generator().manual_seed(31)
    people = torch.rand(size, 14, generator=generator)
    return TensorDataset(people, people.sum(1, keepdim=True) * 4)


def main(epochs=2):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(), batch_size=8))
    for epoch in range(epochs):
        for people, seconds in loader:
            time.sleep(0.03)
            loss = nn.functional.l1_loss(model(people), seconds)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}")
        if epoch == 0 and accelerator.is_main_process:
            digests = export(accelerator.unwrap_model(model).state_dict())
            print(f"{len(digests)} storeys packed", flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
