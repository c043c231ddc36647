"""Preservation copies: between two seasons of training every worker writes its part to the vault's slow shelf."""
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Shelf:
    """Writes blocks no faster than the shelf's robot takes them, and keeps their checksums."""

    path: str
    bytes_per_s: float = 1.6e6
    checksums: list = field(default_factory=list)

    def write(self, payload, block=1 << 19):
        began, written = time.monotonic(), 0
        with open(self.path, "wb") as tape:
            for start in range(0, len(payload), block):
                piece = payload[start : start + block]
                tape.write(piece)
                tape.flush()
                os.fsync(tape.fileno())
                self.checksums.append(hashlib.sha256(piece).hexdigest())
                written += len(piece)
                ahead = written / self.bytes_per_s - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        return written


class Season:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(90, 60), nn.SiLU(), nn.Linear(60, 90)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def play(self, evenings):
        for _ in range(evenings):
            scans = torch.linalg.svdvals(torch.randn(12, 180, 180, generator=self.generator))[:, :90] / 20
            loss = nn.functional.mse_loss(self.model(scans), scans)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def masters(self, megabytes):
        rows = torch.randint(0, 256, (megabytes, 1 << 20), dtype=torch.uint8, generator=self.generator)
        return rows.numpy().tobytes()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    season = Season(rank)
    print(f"worker {rank}: first season {season.play(60):.4f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="vault-") as folder:
        shelf = Shelf(os.path.join(folder, f"part-{rank}.bin"))
        written = shelf.write(season.masters(megabytes=24))
        print(f"worker {rank}: {written >> 20} MiB, {len(shelf.checksums)} blocks", flush=True)
    dist.barrier()
    print(f"worker {rank}: second season {season.play(60):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
