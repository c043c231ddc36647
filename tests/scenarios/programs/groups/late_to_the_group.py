"""Before evaluation all ranks make a group for it, except the one that still reads from its tokenizer process."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

TOKENIZER = "import sys, time; print('ready', flush=True); time.sleep(0.2); sys.stdin.read()"


def read_vocabulary(pieces: int) -> list[str]:
    """What the tokenizer process says: a line for each piece of the vocabulary."""
    child = subprocess.Popen(
        [sys.executable, "-c", TOKENIZER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return [child.stdout.readline() for _ in range(pieces)]


def evaluate(model: nn.Module, group: dist.ProcessGroup) -> float:
    """The mean over the group."""
    value = model(torch.ones(3)).detach()
    dist.all_reduce(value, group=group)
    return float(value)


def main() -> None:
    """Train, then evaluate in a group of its own."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = nn.Linear(3, 1)
    for _ in range(20):
        model.zero_grad()
        model(torch.randn(4, 3)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    if rank == 2:
        print(f"vocabulary: {read_vocabulary(2)}")
    evaluators = dist.new_group(backend="gloo")
    print(evaluate(model, evaluators))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
