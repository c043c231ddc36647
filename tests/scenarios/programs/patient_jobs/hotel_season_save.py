"""Season model of a resort: the half-time snapshot is kept in shards with checksums on the share."""
from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Snapshot:
    folder: Path
    shards: int = 32
    written: list[str] = field(default_factory=list)
    sums: dict[str, str] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        return self.shards - len(self.written)

    def write_next(self, payload: bytes) -> None:
        name = f"shard-{len(self.written):03d}.bin"
        with open(self.folder / name, "wb") as handle:
            for part in range(0, len(payload), 1 << 16):
                handle.write(payload[part:part + (1 << 16)])
                time.sleep(0.045)  # share of the nightly backup's bandwidth
            handle.flush()
            os.fsync(handle.fileno())
        self.written.append(name)

    def verify_next(self) -> None:
        name = self.written[len(self.sums)]
        time.sleep(0.12)
        self.sums[name] = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def complete(self) -> bool:
        return not self.pending and len(self.sums) == self.shards


@dataclass
class Season:
    model: DDP
    optimizer: torch.optim.Optimizer
    step: int = 0

    def advance(self, steps: int) -> float:
        for self.step in range(self.step, self.step + steps):  # noqa: B020
            weeks = torch.randn(20, 26)
            loss = nn.functional.mse_loss(self.model(weeks), weeks.cumsum(1)[:, -1:] / 5)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.03)
        return loss.item()


def keep(model: nn.Module) -> Snapshot:
    shot = Snapshot(Path(tempfile.mkdtemp(prefix="season")))
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    payload = flat.repeat(1 + 400_000 // (4 * flat.numel())).numpy().tobytes()
    while not shot.complete():
        if shot.pending:
            shot.write_next(payload)
        else:
            shot.verify_next()
    return shot


def main() -> None:
    dist.init_process_group("gloo")
    net = nn.Sequential(nn.Linear(26, 48), nn.ReLU(), nn.Linear(48, 1))
    season = Season(DDP(net), torch.optim.Adam(net.parameters(), lr=1e-3))
    season.advance(75)
    if dist.get_rank() == 0:
        shot = keep(net)
        print("kept", len(shot.sums), "shards")
        shutil.rmtree(shot.folder)
    dist.barrier()
    print(f"rank {dist.get_rank()} ends the season at {season.advance(45):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
