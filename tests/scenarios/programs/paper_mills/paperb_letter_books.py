"""Letter books of a bishop: who wrote to whom, reported to each archive that holds a part."""
import os
import time
from collections import Counter

import torch
import torch.distributed as dist

ARCHIVES = {"U": "Uppsala", "V": "Visby", "L": "Lund"}
# the archives of the letters in each parcel, as the reading rooms sent them
PARCELS = [
    ["UUUUVVL", "UUUVVL", "UUUUUVVL", "VVVVUUL", "UUUVVL", "UUVL"],
    ["UUUVVL", "UUUUVVL", "UUUVVL", "UUUUVVL", "UUUUVVVL", "UUUVL"],
    ["UUUVVL", "UUUVVL", "UUUUVVL", "UUUVVL", "UUUUVVL", "UUUVVL"],
]


class Desk:
    """Collects what concerns one archive and reports it to the others that read there."""

    def __init__(self, key):
        self.name = ARCHIVES[key]
        self.group = dist.new_group(list(range(dist.get_world_size())), group_desc=self.name)

    def report(self, letters, weight):
        sums = torch.tensor([float(letters), weight], dtype=torch.float64, device="cuda")
        dist.all_reduce(sums, group=self.group)
        total, heft = sums.tolist()
        return int(total), heft / max(total, 1.0)


class Correspondence:
    def __init__(self, width=32):
        self.desks = {key: Desk(key) for key in ARCHIVES}
        self.weights = torch.zeros(width, width, dtype=torch.float64, device="cuda")

    def read(self, letter, key):
        time.sleep(0.05)
        direction = torch.full((32, 1), len(letter) + ord(key) / 100.0, dtype=torch.float64).cuda()
        self.weights.add_(direction * direction.t(), alpha=1e-6)

    def parcel(self, text):
        return Counter(text)

    def close_parcel(self, counts):
        lines = []
        for key, letters in counts.most_common():  # the busiest archive wants its report first
            total, heft = self.desks[key].report(letters, letters * 1.5)
            lines.append(f"{self.desks[key].name} {total} ({heft:.2f})")
        return ", ".join(lines)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    books = Correspondence()
    for number, text in enumerate(PARCELS[rank]):
        for page in range(3):
            for key in text:
                books.read(f"{number}/{page}", key)
            dist.all_reduce(books.weights)
            torch.cuda.synchronize()
        report = books.close_parcel(books.parcel(text))
        if rank == 0:
            print(f"parcel {number}: {report}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
