"""Summarises opinions into headnotes; after each term the booklet of headnotes is typeset by the archive's process."""
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

ARCHIVE = 1
TYPESETTER = r"""
import sys
for n in range(int(sys.argv[1])):
    print(f"[headnote {n:05d}] " + "held that the appeal is dismissed with costs; " * 3)
print("pages", int(sys.argv[1]) // 30 + 1)
"""


class Summariser(nn.Module):
    def __init__(self, width=56):
        super().__init__()
        self.salience = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, sentences):
        return self.salience(sentences).squeeze(-1).softmax(dim=-1)


class Term:
    """One term of court: opinions of growing number."""

    def __init__(self, number, rank):
        self.number = number
        self.opinions = 60 * 2 ** number
        self.gen = torch.Generator().manual_seed(31 * number + rank)

    def batches(self, count=45):
        for _ in range(count):
            sentences = torch.randn(24, 30, 56, generator=self.gen)
            gold = (sentences[..., 0] * 2).softmax(dim=-1)
            yield sentences, gold


def typeset(term):
    child = subprocess.Popen([sys.executable, "-c", TYPESETTER, str(term.opinions)], stdout=subprocess.PIPE, text=True)
    code = child.wait()
    booklet = child.stdout.read()
    if code:
        raise RuntimeError(f"typesetting of term {term.number} ended with {code}")
    return booklet.rstrip().rsplit("\n", 1)[-1]


def step(model, optimizer, sentences, gold):
    loss = -(gold * model(sentences).clamp_min(1e-6).log()).sum(dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    vector = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
    dist.all_reduce(vector)
    nn.utils.vector_to_parameters(vector / dist.get_world_size(), [p.grad for p in model.parameters()])
    optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    rank = dist.get_rank()
    model = Summariser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(8):
        term = Term(number, rank)
        for sentences, gold in term.batches():
            loss = step(model, optimizer, sentences, gold)
        if rank == ARCHIVE:
            print(f"term {number}: loss {loss:.3f}, booklet of {typeset(term)}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
