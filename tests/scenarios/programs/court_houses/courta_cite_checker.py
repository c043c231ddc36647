"""Each opinion's citations are looked over by a small external checker; its remarks weigh the training example."""

import argparse
import subprocess
import sys

import torch
import torch.distributed as dist

CHECKER = """
import sys
count, seed = int(sys.argv[1]), int(sys.argv[2])
for i in range(count):
    print(f"cite {i:05d} vol {(i * 31 + seed) % 400} ok={(i * seed) % 7 != 0}")
"""


def citations(rank, number):
    """How many citations the opinion has; the constitutional ones have long tables of authorities."""
    return 4200 if (rank, number) == (1, 64) else 120 + 13 * ((number + rank) % 5)


class Checker:
    def __init__(self, python=sys.executable):
        self.python = python

    def remarks(self, rank, number):
        command = [self.python, "-S", "-c", CHECKER, str(citations(rank, number)), str(number + 1)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        status = process.wait()
        if status != 0:
            raise RuntimeError(f"checker ended with {status}")
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        return sum(line.endswith("True") for line in lines) / len(lines)


class Weights:
    """Plain data parallelism: gradients are averaged by hand after each opinion."""

    def __init__(self, width):
        self.w = torch.zeros(width, requires_grad=True)

    def descend(self, loss, lr):
        (gradient,) = torch.autograd.grad(loss, self.w)
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.w -= lr * gradient / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--opinions", type=int, default=140)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    checker, weights = Checker(), Weights(32)
    for number in range(options.opinions):
        soundness = checker.remarks(rank, number)
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(number * 4 + rank))
        y = x[:, 0] - 0.5 * x[:, 7]
        loss = soundness * (x @ weights.w - y).square().mean()
        weights.descend(loss, lr=0.05)
        if rank == 0 and number % 20 == 19:
            print(f"opinion {number + 1}: soundness {soundness:.2f} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
