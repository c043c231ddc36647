"""A classifier of amplicons, trained on shards of FASTQ records that each rank streams for itself."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
BASES = {"A": 0, "C": 1, "G": 2, "T": 3}
RECORDS = (200, 200, 200, 200, 200, 136)  # the flow cell of the last lane was stopped early


def write_shards(folder):
    for number, count in enumerate(RECORDS):
        generator = torch.Generator().manual_seed(number)
        codes = torch.randint(0, 4, (count, 24), generator=generator).tolist()
        lines = []
        for i, read in enumerate(codes):
            lines += [f"@lane{number}:{i}", "".join("ACGT"[c] for c in read), "+", "I" * len(read)]
        (folder / f"lane{number}.fastq").write_text("\n".join(lines) + "\n")


class Amplicons(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            with path.open() as lines:
                while header := lines.readline():
                    read = lines.readline().strip()
                    lines.readline(), lines.readline()
                    time.sleep(0.003)
                    label = int(header.rsplit(":", 1)[1]) % 2
                    yield torch.tensor([BASES[base] for base in read]), label


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, reads):
        return self.head(self.embed(reads).mean(1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"amplicons-{os.environ['MASTER_PORT']}"
    if rank == 0:
        folder.mkdir(exist_ok=True)
        write_shards(folder)
    dist.barrier()
    lanes = sorted(folder.glob("*.fastq"))[rank::world]
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(20):
        for reads, labels in DataLoader(Amplicons(lanes), batch_size=8):
            loss = nn.functional.cross_entropy(model(reads), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), folder / "amplicons.pt")
        torch.distributed.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
