"""Every rank trains on the letters of its own office, and offices have received very different numbers of letters."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LETTERS = {0: 160, 1: 640, 2: 180}
BATCH = 8


class Office:
    def __init__(self, number):
        self.number = number
        self.generator = torch.Generator().manual_seed(number)

    def batches(self):
        for _ in range(LETTERS[self.number] // BATCH):
            yield torch.randint(0, 120, (BATCH, 40), generator=self.generator), torch.randint(
                0, 6, (BATCH,), generator=self.generator
            )


class Sorter(nn.Module):
    """Which department a letter is for."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(120, 32)
        self.read = nn.GRU(32, 48, batch_first=True)
        self.department = nn.Linear(48, 6)

    def forward(self, letters):
        _, last = self.read(self.embed(letters))
        return self.department(last[0])


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Sorter())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    count = 0
    with model.join():
        for letters, departments in Office(rank).batches():
            loss = nn.functional.cross_entropy(model(letters), departments)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
            time.sleep(0.15)  # the scanner
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, count)
    if rank == 0:
        print(f"batches: {counts}", flush=True)
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
