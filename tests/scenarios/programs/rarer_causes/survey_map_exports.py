"""Ground water maps from a survey's stations: the fit goes on in all ranks, maps are exported by short-lived processes."""

import json
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STATIONS = {0: 6, 1: 2600, 2: 9}


class Journal:
    """Notes on a run: collected in memory, and moved to the archive at a rate that its share can take."""

    def __init__(self, path, rate=20_000):
        self.path = path
        self.rate = rate
        self.lock = threading.Lock()
        self.notes = []

    def note(self, **fields):
        with self.lock:
            self.notes.append(json.dumps(fields))

    def archive(self):
        threading.Thread(target=self._move, name="archive", daemon=True).start()

    def _move(self):
        with self.lock, open(self.path, "a") as file:
            for line in self.notes:
                file.write(line + "\n")
                file.flush()
                time.sleep(len(line) / self.rate)
            self.notes.clear()


class MapExporter:
    def __init__(self, folder, journal):
        self.folder = folder
        self.journal = journal
        self.context = multiprocessing.get_context("fork")

    def export(self, step, surface):
        child = self.context.Process(target=self.render, args=(step, surface))
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError(f"no map of step {step}")

    def render(self, step, surface):
        low, high = min(map(min, surface)), max(map(max, surface))
        scale = 9 / (high - low or 1.0)
        rows = ["".join(str(int((value - low) * scale)) for value in row) for row in surface]
        path = self.folder / f"map-{step}.txt"
        path.write_text("\n".join(rows))
        self.journal.note(step=step, map=path.name, low=low, high=high)


def grid(model, size=24):
    axis = torch.linspace(-1, 1, size)
    with torch.no_grad():
        return model.module(torch.cartesian_prod(axis, axis)).view(size, size).tolist()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"survey-{os.environ['MASTER_PORT']}", str(rank))
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(rank)
    places = torch.rand(STATIONS[rank], 2, generator=generator) * 2 - 1
    levels = torch.sin(3 * places[:, 0]) * places[:, 1]
    journal = Journal(folder / "journal.jsonl")
    exporter = MapExporter(folder, journal)
    for number, level in enumerate(levels.tolist()):
        journal.note(station=number, level=round(level, 3))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, 5000):
        chosen = torch.randint(0, len(places), (16,), generator=generator)
        loss = (model(places[chosen]).squeeze(1) - levels[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 40 == 0:
            journal.note(step=step, loss=round(loss.item(), 4))
            journal.archive()
        if step % 25 == 0:
            exporter.export(step, grid(model))
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
