"""Saves checkpoints in the background: one worker, so that files are written in order."""

import hashlib
import json
import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BackgroundSaver:
    """Takes a copy of the weights, and writes it while training goes on."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self.pending: Future | None = None
        self.written: list[Path] = []

    def save(self, model: nn.Module, step: int) -> None:
        if self.pending is not None:
            self.pending.result()
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.pending = self.pool.submit(self._write, weights, step)

    def _write(self, weights: dict[str, torch.Tensor], step: int) -> None:
        path = self.folder / f"step-{step:06}.pt"
        torch.save(weights, path)
        self.written.append(path)
        if len(self.written) > self.keep:
            self._retire(self.written.pop(0))

    def _retire(self, path: Path) -> None:
        """Replaces an old checkpoint by its digest. Never beside a write, as the disk is slow."""
        digest = self.pool.submit(lambda: hashlib.sha256(path.read_bytes()).hexdigest())
        path.with_suffix(".json").write_text(json.dumps({"sha256": digest.result()}))
        path.unlink()

    def close(self) -> None:
        self.pool.shutdown(wait=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"saver-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    saver = BackgroundSaver(folder) if rank == 0 else None
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 20)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 3001):
        x = torch.randn(24, 20, generator=generator)
        loss = (model(x) - x.sort(1).values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.025)
        if saver is not None and step % 35 == 0:
            saver.save(model.module, step)
    if saver is not None:
        saver.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
