"""Contact prediction from sequence alignments. Hard negatives are aligned by an external program after each epoch."""

import subprocess
import sys
import textwrap
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
RESIDUES, ALPHABET = 24, "ACDEFGHIKLMNPQRSTVWY-"

ALIGNER = textwrap.dedent("""
    import random, sys
    count, length = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(count)
    print("# aligner 2.1", file=sys.stderr)
    for number in range(count):
        row = "".join(rng.choice("ACDEFGHIKLMNPQRSTVWY-") for _ in range(length))
        print(f">negative{number:06} length={length} score={rng.random():.6f}")
        print(row)
""")


class Aligner:
    """Runs the program, and parses what it prints."""

    def __init__(self, command):
        self.command = command

    def align(self, count, length):
        process = subprocess.Popen(
            [*self.command, str(count), str(length)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if process.wait() != 0:
            raise RuntimeError(f"aligner failed with status {process.returncode}")
        rows = [line.strip() for line in process.stdout if not line.startswith((">", "#"))]
        return torch.tensor([[ALPHABET.index(residue) for residue in row] for row in rows])


class Contacts(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), width)
        self.pair = nn.Linear(2 * width, 1)

    def forward(self, alignment):
        column = self.embed(alignment).mean(0)
        pairs = torch.cat([column[:, None].expand(-1, RESIDUES, -1), column[None].expand(RESIDUES, -1, -1)], -1)
        return self.pair(pairs)[..., 0]


def negatives_for(epoch):
    """Twice as many from epoch to epoch, from 200 on."""
    return 200 * 2**epoch


def share(rows, rank):
    """Hands the rows of rank 0 to everybody."""
    shape = torch.tensor(rows.shape if rank == 0 else (0, 0))
    dist.broadcast(shape, src=0)
    if rank != 0:
        rows = torch.empty(shape.tolist(), dtype=torch.long)
    dist.broadcast(rows, src=0)
    return rows


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Contacts())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    aligner = Aligner([sys.executable, "-c", ALIGNER])
    generator = torch.Generator().manual_seed(rank)
    negatives = torch.zeros(1, RESIDUES, dtype=torch.long)
    for epoch in range(9):
        for _ in range(15):
            alignment = torch.randint(len(ALPHABET), (32, RESIDUES), generator=generator)
            target = (alignment.float().mean(0)[:, None] > 10).float().expand(-1, RESIDUES)
            loss = nn.functional.binary_cross_entropy_with_logits(model(alignment), target)
            loss = loss + model.module(negatives).sigmoid().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        negatives = share(aligner.align(negatives_for(epoch), RESIDUES) if rank == 0 else None, rank)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}, {len(negatives)} negatives", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
