"""Exam sheets come from two scanners; each rank reads the spool of its own scanner and learns to find crosses."""
import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SHAPE = (24, 24)


def fill_spool(folder: Path, sheets: int, duplex_from: int | None) -> Path:
    """Sheets already scanned are plain files; the feeder's last pages are handed over through named pipes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(len(str(folder)))
    for number in range(sheets):
        path = folder / f"sheet{number:04d}.raw"
        if duplex_from is not None and number >= duplex_from:
            os.mkfifo(path)
        else:
            path.write_bytes(rng.integers(0, 255, SHAPE, dtype=np.uint8).tobytes())
    return folder


class Sheets(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.raw"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        raw = np.frombuffer(self.paths[index].read_bytes(), dtype=np.uint8)
        sheet = torch.from_numpy(raw.reshape(SHAPE).astype(np.float32) / 255)
        time.sleep(0.004)
        return sheet[None], (sheet[8:16, 8:16].mean() > 0.5).long()


class CrossFinder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(200, 2)
        )


def main(sheets, batch, workers):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    spool = Path(tempfile.mkdtemp(prefix="spool-")) / f"scanner{rank}"
    fill_spool(spool, sheets, duplex_from=sheets - 40 if rank == 1 else None)
    loader = DataLoader(Sheets(spool), batch_size=batch, num_workers=workers, prefetch_factor=2)
    torch.manual_seed(2)
    model = DistributedDataParallel(CrossFinder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    started = time.time()
    for step, (pages, crossed) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(pages), crossed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"{time.time() - started:5.1f}s step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sheets", type=int, default=960)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    main(**vars(parser.parse_args()))
