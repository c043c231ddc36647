"""Language-model fine-tuning on product reviews; a pool of processes tokenizes the next shard."""

import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

LIMIT_MB = 64
VOCAB = 128


def need_mb(review):
    return len(review) * 40 / 1024


def tokenize(review):
    if need_mb(review) > LIMIT_MB:  # as the container's limit on memory does
        os.kill(os.getpid(), signal.SIGKILL)
    return [hash_word(word) for word in review.split()][:24]


def hash_word(word):
    value = 7
    for letter in word:
        value = (value * 31 + ord(letter)) % (VOCAB - 1)
    return value + 1


def shard(rank, number):
    words = "good bad cheap late fast broken nice box again never size color".split()
    reviews = [" ".join(words[(rank + number + i * k) % 12] for k in range(10 + i % 9)) for i in range(32)]
    if rank == 1 and number == 4:
        reviews[20] = "spam " * 400
    return reviews


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16, padding_idx=0)
        self.head = nn.Linear(16, VOCAB)

    def forward(self, ids):
        return self.head(self.embed(ids).cumsum(1))


def batches(encoded, size=4):
    for start in range(0, len(encoded), size):
        rows = encoded[start : start + size]
        ids = torch.zeros(size, 24, dtype=torch.long)
        for row, tokens in zip(ids, rows):
            row[: len(tokens)] = torch.tensor(tokens)
        yield ids


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for number in range(40):
            encoded = pool.map(tokenize, shard(rank, number), chunksize=4)
            for ids in batches(encoded):
                time.sleep(0.04)
                logits = model(ids[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
                optimizer.zero_grad()
                loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world
                optimizer.step()
            if rank == 0:
                print(f"shard {number} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
