"""Aligns old with modern spelling; a small tool beside each process normalises the words."""
import atexit
import os
import subprocess
import sys
import textwrap

import torch
import torch.distributed as dist
from torch import nn

TOOL = textwrap.dedent("""
    import sys, time
    RULES = [("vn", "un"), ("th", "t"), ("ey", "ei"), ("cz", "z")]
    for line in sys.stdin:
        word, mark = line.rstrip("\\n").split("\\t")
        time.sleep(0.02)
        for old, new in RULES:
            word = word.replace(old, new)
        ends = {"full": "\\n", "hyphen": ""}[mark]  # a hyphen joins the next line
        sys.stdout.write(word + ends)
        sys.stdout.flush()
""")

LEAVES = {
    0: ["vnd", "thun", "seyn", "czu", "vnser", "thaler", "bey", "czeit"],
    1: ["vnder", "theil", "freyheit", "czehn", "vnrat", "thor", "meyer", "czoll"],
}


class Normaliser:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self.process.kill)

    def __call__(self, word, mark="full"):
        self.process.stdin.write(f"{word}\t{mark}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


class Leaf:
    """A leaf's words with the sign that ends each; the binder cut some leaves at the margin."""

    cut = {(1, 30): 5}

    def __init__(self, rank, number):
        self.words = LEAVES[rank]
        self.at = self.cut.get((rank, number))

    def __iter__(self):
        for place, word in enumerate(self.words):
            yield word, "hyphen" if place == self.at else "full"


def letters(word, size=26):
    counts = [0.0] * size
    for letter in word:
        counts[(ord(letter) - 97) % size] += 1.0
    return counts


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())


def run(normalise):
    rank = dist.get_rank()
    model = nn.Linear(26, 26).cuda()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(60):
        pairs = [(word, normalise(word, mark)) for word, mark in Leaf(rank, number)]
        old = torch.tensor([letters(word) for word, _ in pairs]).cuda()
        new = torch.tensor([letters(word) for _, word in pairs]).cuda()
        optimizer.zero_grad()
        loss = (model(old) - new).square().mean()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        torch.cuda.current_stream().synchronize()
        if number % 10 == 0:
            print(f"rank {rank}: leaf {number}, last word {pairs[-1]}", flush=True)


if __name__ == "__main__":
    tool = Normaliser()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    run(tool)
    dist.destroy_process_group()
