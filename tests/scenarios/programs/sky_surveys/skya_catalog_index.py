"""Galaxy classification; the main process indexes the catalogue by sky cell before the others read it (accelerate)."""
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

CELLS, PER_CELL = 3000, 8


def cell_rows(cell):
    """Photometry of a cell's galaxies."""
    g = torch.Generator().manual_seed(cell)
    return torch.randn(PER_CELL, 10, generator=g).cumsum(1)


def build_index(path, budget_s=14.0):
    """Cells by crowding: each cell's galaxies are counted against those of its neighbours."""
    started, index = time.monotonic(), {}
    for cell in range(CELLS):
        own = cell_rows(cell)
        crowding = 0.0
        while True:
            for neighbour in range(max(0, cell - 8), cell + 8):
                crowding += torch.cdist(own, cell_rows(neighbour)).lt(2.0).sum().item()
            if time.monotonic() - started >= budget_s * (cell + 1) / CELLS:
                break
        index[cell] = crowding
        if cell % 250 == 0:
            print(f"indexing: {cell}/{CELLS} cells, {time.monotonic() - started:.0f} s", flush=True)
    path.write_text(json.dumps(index))


class Galaxies(Dataset):
    def __init__(self, path):
        self.order = sorted(json.loads(path.read_text()), key=int)

    def __len__(self):
        return len(self.order)

    def __getitem__(self, i):
        rows = cell_rows(int(self.order[i]))
        return rows.flatten(), (rows[:, -1].mean() > 0).long()


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    path = Path(tempfile.gettempdir()) / f"index-{os.environ['MASTER_PORT']}.json"
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            build_index(path)
    loader = DataLoader(Galaxies(path), batch_size=20, shuffle=True)
    model = nn.Sequential(nn.Linear(10 * PER_CELL, 128), nn.ReLU(), nn.Linear(128, 2))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-3), loader)
    for epoch in range(2):
        for rows, late in loader:
            loss = nn.functional.cross_entropy(model(rows), late)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {accelerator.reduce(loss.detach(), 'mean').item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
