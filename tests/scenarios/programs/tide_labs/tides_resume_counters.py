"""Permafrost temperatures, chained jobs: each rank goes on from the newest state it finds on its own disk."""
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

TOTAL = 60


class Journal:
    """Keeps a rank's position: two slots in turn, so that a job which ends while it writes leaves the other one whole."""

    def __init__(self, rank):
        self.folder = Path(tempfile.gettempdir()) / f"frost-{os.environ['MASTER_PORT']}" / str(rank)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, step, soil):
        slot = self.folder / f"slot{(step // 4) % 2}.json"
        slot.write_text(json.dumps({"step": step, "soil": soil.tolist()}))

    def newest(self):
        best = {"step": 0, "soil": [0.0] * 8}
        for slot in sorted(self.folder.glob("slot*.json")):
            try:
                entry = json.loads(slot.read_text())
            except json.JSONDecodeError:
                continue
            best = max(best, entry, key=lambda e: e["step"])
        return best["step"], torch.tensor(best["soil"])


def previous_job(journal, rank):
    """What the job before this one had written when its wall time was over."""
    journal.write(24, torch.full((8,), -1.5))
    journal.write(28, torch.full((8,), -1.4))
    if rank != 1:
        (journal.folder / "slot1.json").write_text('{"step": 28, "soil": [-1.4, -1.4, -')


def heat_step(soil, air):
    flux = 0.2 * (air - soil)
    dist.all_reduce(flux)
    return soil + flux / dist.get_world_size()


def report(soil, rank):
    columns = [torch.empty_like(soil) for _ in range(dist.get_world_size())]
    dist.all_gather(columns, soil)
    if rank == 0:
        print("active layer", torch.stack(columns).amax(0).tolist(), flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = Journal(rank)
    previous_job(journal, rank)
    step, soil = journal.newest()
    generator = torch.Generator().manual_seed(rank)
    while step < TOTAL:
        soil = heat_step(soil, -3 + torch.randn(8, generator=generator))
        step += 1
        if step % 4 == 0:
            journal.write(step, soil)
        time.sleep(0.1)
    report(soil, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
