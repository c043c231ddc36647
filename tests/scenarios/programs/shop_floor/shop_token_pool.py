"""Tokenizes new documents between the rounds, in a pool of processes that may use so much CPU each and no more."""

import multiprocessing
import random
import resource
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CPU_SECONDS = 2


def limit_cpu() -> None:
    """The shared machines ask for this, since tokenizers have run wild before."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def tokenize(text: str) -> list[int]:
    """Greedy merges of the most frequent pair, until none is left that occurs twice."""
    tokens = [ord(letter) % 97 for letter in text]
    fresh = 97
    while True:
        pairs: dict[tuple[int, int], int] = {}
        for pair in zip(tokens, tokens[1:]):
            pairs[pair] = pairs.get(pair, 0) + 1
        best, count = max(pairs.items(), key=lambda item: item[1], default=((0, 0), 0))
        if count < 2:
            return tokens
        merged, index = [], 0
        while index < len(tokens):
            if tuple(tokens[index : index + 2]) == best:
                merged.append(fresh)
                index += 2
            else:
                merged.append(tokens[index])
                index += 1
        tokens, fresh = merged, fresh + 1


def documents(rank: int, number: int) -> list[str]:
    """A few mails in each round. Once a customer sends a log file along."""
    dice = random.Random(100 * rank + number)
    lengths = [60, 90, 120, 80]
    if rank == 2 and number == 3:
        lengths[1] = 40_000
    return ["".join(dice.choices("abcdefgh ", k=length)) for length in lengths]


def train_round(model: nn.Module, optimizer: torch.optim.Optimizer, samples: list[list[int]]) -> float:
    bag = torch.zeros(len(samples), 1024)
    for row, tokens in enumerate(samples):
        bag[row] = torch.bincount(torch.tensor(tokens) % 1024, minlength=1024).float()
    for _ in range(40):
        loss = model(bag).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(1024, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for number in range(1, 10):
        with multiprocessing.Pool(2, initializer=limit_cpu) as pool:
            samples = pool.map(tokenize, documents(rank, number), chunksize=1)
        loss = train_round(model, optimizer, samples)
        print(f"[{rank}] round {number}: {sum(map(len, samples))} tokens, {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
