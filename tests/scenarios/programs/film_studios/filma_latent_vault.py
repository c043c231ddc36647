"""Latents of archive clips are made once by the first desk, then everybody trains on them."""
import hashlib
import logging
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("vault")


class Tape:
    """A clip on LTO: comes at the speed of the drive, block after block."""

    def __init__(self, number, blocks=3, block=200_000, rate=5_000_000):
        self.number, self.blocks, self.block, self.rate = number, blocks, block, rate

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.number)
        for _ in range(self.blocks):
            due = time.monotonic() + self.block / self.rate
            yield torch.rand(self.block // 4, generator=gen)
            time.sleep(max(0.0, due - time.monotonic()))


class Encoder(nn.Module):
    def __init__(self, out=16):
        super().__init__()
        self.conv = nn.Conv1d(1, out, 64, stride=32)

    def forward(self, signal):
        return torch.tanh(self.conv(signal.view(1, 1, -1))).mean(-1).squeeze(0)


class Vault:
    def __init__(self, folder, encoder):
        self.folder, self.encoder = folder, encoder

    def path(self, number):
        return self.folder / f"{hashlib.md5(str(number).encode()).hexdigest()}.pt"

    @torch.no_grad()
    def fill(self, numbers):
        began = time.monotonic()
        for done, number in enumerate(numbers, 1):
            latent = torch.stack([self.encoder(block) for block in Tape(number)])
            torch.save(latent, self.path(number))
            if done % 20 == 0:
                log.info("%d of %d clips, %.1f s", done, len(numbers), time.monotonic() - began)

    def read(self, numbers):
        return torch.stack([torch.load(self.path(n)) for n in numbers]).flatten(1)


def fit(model, optim, latents, steps, gen):
    for _ in range(steps):
        pick = torch.randint(len(latents), (32,), generator=gen)
        x = latents[pick]
        loss = (model(x + 0.1 * torch.randn(x.shape, generator=gen)) - x).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    where = [tempfile.mkdtemp(prefix="vault-") if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    vault = Vault(Path(where[0]), Encoder().eval())
    model = DDP(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(10 + rank)
    for numbers in (range(0, 8), range(8, 116)):
        if rank == 0:
            vault.fill(numbers)
        dist.barrier()
        loss = fit(model, optim, vault.read(numbers), 400, gen)
        if rank == 0:
            log.info("%d clips: %.4f", len(numbers), loss)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(where[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
