"""Crew rostering model with background snapshots: each depot writes its own roster, then the index is put together."""
import hashlib
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

DEPOTS = ["Olten", "Brig", "Chiasso"]
DRIVERS = {"Olten": 18, "Brig": 24, "Chiasso": 1900}


class RosterStore:
    """Writes a roster in the background, so that training does not wait for the disk."""

    def __init__(self, root, rank, world):
        self.root, self.rank, self.world = root, rank, world
        self.worker = None

    def save_async(self, step, weights):
        self.wait()
        frozen = {k: v.detach().clone() for k, v in weights.items()}
        self.worker = threading.Thread(target=self._write, args=(step, frozen), name=f"roster-{step}", daemon=True)
        self.worker.start()

    def _write(self, step, frozen):
        depot = DEPOTS[self.rank]
        digest = hashlib.sha256()
        with open(self.root / f"{depot}-{step}.jsonl", "w") as out:
            for driver in range(DRIVERS[depot]):
                row = json.dumps({"driver": driver, "turn": (driver * 7 + step) % 28})
                digest.update(row.encode())
                out.write(row + "\n")
                out.flush()
                time.sleep(0.001)
        torch.save(frozen, self.root / f"weights-{depot}-{step}.pt")
        mark = torch.tensor([int(digest.hexdigest()[:8], 16)], dtype=torch.int64)
        marks = [torch.empty_like(mark) for _ in range(self.world)]
        dist.all_gather(marks, mark)
        if self.rank == 0:
            (self.root / f"index-{step}.json").write_text(json.dumps([int(m) for m in marks]))

    def wait(self):
        if self.worker is not None:
            self.worker.join()
            self.worker = None


def turns(gen, n=64):
    """Duty turns: start, length, breaks, night share... and how tired the driver says he was."""
    time.sleep(0.03)
    x = torch.rand(n, 10, generator=gen)
    return x, (x[:, :4].sum(1) - x[:, 6] * 2).unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(rank)
    torch.manual_seed(1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.SiLU(), torch.nn.Linear(32, 1)))
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    root = Path(tempfile.mkdtemp(prefix="rosters-"))
    store = RosterStore(root, rank, world)
    for step in range(1, 400):
        if step % 70 == 0:
            store.save_async(step, model.module.state_dict())
            time.sleep(0.4)  # lets the snapshot have the disk first
        x, y = turns(gen)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step:4d} fatigue mse {loss.item():.4f}", flush=True)
    store.wait()
    dist.barrier()
    if rank == 0:
        print("rosters in", root, os.listdir(root)[:4])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
