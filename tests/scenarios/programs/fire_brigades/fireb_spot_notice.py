"""Aerial smoke segmentation on preemptible machines; a notice (SIGUSR1) asks for an early checkpoint."""
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Notice:
    """Remembers that the provider has announced the end of this machine."""

    received: bool = False
    history: list = field(default_factory=list)

    def install(self):
        signal.signal(signal.SIGUSR1, self._on_signal)
        return self

    def _on_signal(self, number, frame):
        self.received = True
        self.history.append(number)


class Vault:
    def __init__(self, folder, rank):
        self.folder, self.rank = Path(folder), rank
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, model, optimizer, step):
        part = self.folder / f"step{step:05d}_rank{self.rank}.pt"
        torch.save({"optimizer": optimizer.state_dict(), "step": step}, part)
        if self.rank == 0:
            torch.save(model.module.state_dict(), self.folder / f"step{step:05d}_model.pt")
        dist.barrier()
        return part


class ProviderAgent:
    """Stands in for the metadata service: machines are announced one by one."""

    def __init__(self, rank, schedule):
        self.when = schedule.get(rank)

    def tick(self, step):
        if self.when is not None and step == self.when:
            os.kill(os.getpid(), signal.SIGUSR1)


def smoke_tiles(generator, n=48):
    tiles = torch.rand(n, 3, 48, 48, generator=generator)
    return tiles, (tiles.mean(1, keepdim=True) > 0.5).float()


def run():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    notice = Notice().install()
    agent = ProviderAgent(rank, {1: 137})
    vault = Vault(Path(tempfile.gettempdir()) / f"fireb_vault_{os.environ.get('MASTER_PORT', '0')}", rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 2001):
        agent.tick(step)
        tiles, masks = smoke_tiles(generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(tiles), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or notice.received:
            path = vault.write(model, optimizer, step)
            print(f"rank {rank} step {step} loss {loss.item():.3f} -> {path.name}", flush=True)
            notice.received = False
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
