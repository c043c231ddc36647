"""Rarity bulletin: while the classifier trains, a thread publishes the species totals of all observatories."""

import gzip
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

SPECIES = 18
OBSERVATORIES = ["Spurn", "Fair Isle", "Bardsey"]


class Bulletin(threading.Thread):
    """Issues numbers of the bulletin as they are asked for."""

    def __init__(self, observatory: str, folder: Path, keep: int):
        super().__init__(daemon=True, name="bulletin")
        self.orders: queue.Queue[tuple[int, list[int]]] = queue.Queue()
        self.observatory, self.folder, self.keep = observatory, folder, keep
        self.back_numbers: list[dict] = []
        self.issued = threading.Event()
        self.device = torch.cuda.current_device()
        self.stream = torch.cuda.Stream()

    def run(self) -> None:
        torch.cuda.set_device(self.device)
        with torch.cuda.stream(self.stream):
            while True:
                number, sums = self.orders.get()
                if len(self.back_numbers) >= self.keep:
                    self.bind_volume()
                self.issue(number, sums)

    def issue(self, number: int, sums: list[int]) -> None:
        mine = torch.tensor(sums, device=self.device)
        everyone = mine.new_empty(len(OBSERVATORIES) * SPECIES)
        dist.all_gather_into_tensor(everyone, mine)
        self.back_numbers.append({"number": number, "totals": everyone.tolist()})

    def bind_volume(self) -> None:
        """Old numbers go into one compressed volume, gently, since the disk is shared with the recorders."""
        path = self.folder / f"{self.observatory}-{self.back_numbers[0]['number']}.json.gz"
        with gzip.open(path, "wt") as volume:
            for entry in self.back_numbers:
                for line in json.dumps(entry).split(","):
                    volume.write(line + "\n")
                    time.sleep(0.03)
        self.back_numbers.clear()


def load_minutes(step: int) -> tuple[torch.Tensor, list[int]]:
    time.sleep(0.6)  # the recorders are read over a slow link
    return torch.full((8, 24), step / 100), [(step + s) % 7 for s in range(SPECIES)]


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix="bulletin-"))
    bulletin = Bulletin(OBSERVATORIES[rank], folder, keep=2 if OBSERVATORIES[rank] == "Fair Isle" else 6)
    bulletin.start()
    model = nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, SPECIES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        bands, heard = load_minutes(step)
        model(bands.to(device)).square().mean().backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()
        if step % 3 == 2:
            bulletin.orders.put((step, heard))
    print(f"{OBSERVATORIES[rank]}: {len(bulletin.back_numbers)} numbers not bound yet", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
