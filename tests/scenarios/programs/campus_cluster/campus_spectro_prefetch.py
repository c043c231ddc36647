"""Exoplanet transits: light curves are read by a thread while the model trains on the ones before."""

import json
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PER_RANK = 60


def make_archive(folder: Path, rank: int) -> Path:
    """The light curves of one camera, and the list of them. Camera 1 was closed for a night."""
    rng = torch.Generator().manual_seed(rank)
    names = []
    for night in range(PER_RANK):
        name = f"camera{rank}-night{night:03d}.pt"
        names.append(name)
        if (rank, night) == (1, 41):
            continue
        transit = torch.randint(0, 2, (16,), generator=rng)
        curves = torch.randn(16, 50, generator=rng) * 0.1 + 1
        curves[:, 20:30] -= 0.3 * transit.unsqueeze(1)
        torch.save({"curves": curves, "transit": transit}, folder / name)
    manifest = folder / f"camera{rank}.json"
    manifest.write_text(json.dumps(names))
    return manifest


class Reader:
    """Iterates over the nights of a manifest, a few of them ahead."""

    def __init__(self, manifest: Path, ahead: int = 4) -> None:
        self.folder = manifest.parent
        self.names = json.loads(manifest.read_text())
        self.nights: queue.Queue = queue.Queue(ahead)
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def _read(self) -> None:
        for name in self.names:
            path = self.folder / name
            if not path.exists():
                print(f"no {name}, reading ends here", flush=True)
                return
            self.nights.put(torch.load(path, weights_only=True))
        self.nights.put(None)

    def __iter__(self):
        while True:
            night = self.nights.get()
            if night is None:
                return
            yield night["curves"], night["transit"]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"transits-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    manifest = make_archive(folder, rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(50, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for curves, transit in Reader(manifest):
            loss = nn.functional.cross_entropy(model(curves), transit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.06)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
