"""Writes replies to customers who ask about a claim. The decoder's matrices lie in slices, one slice per process."""
import itertools
import math

import torch
import torch.distributed as dist
from torch import nn

VOCAB, SIZE, MAX_NEW, END, THANKS = 256, 192, 20, 1, 2


class Sliced(nn.Module):
    """A linear layer of which each process keeps some rows; the whole is put together for each use."""

    def __init__(self, rows, columns, rank, world):
        super().__init__()
        g = torch.Generator().manual_seed(rows * 31 + columns)
        whole = torch.randn(rows, columns, generator=g) / math.sqrt(columns)
        self.own = nn.Parameter(whole.chunk(world)[rank].clone(), requires_grad=False)
        self.world = world

    def forward(self, x):
        parts = [torch.empty_like(self.own) for _ in range(self.world)]
        dist.all_gather(parts, self.own)
        return x @ torch.cat(parts).T


class Decoder(nn.Module):
    def __init__(self, rank, world, depth=3):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, SIZE)
        self.layers = nn.ModuleList(Sliced(SIZE, SIZE, rank, world) for _ in range(depth))
        self.head = Sliced(VOCAB + world - VOCAB % world, SIZE, rank, world)

    @torch.no_grad()
    def forward(self, ids):
        x = self.embed(ids).cumsum(1)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x[:, -1])[:, :VOCAB]


def questions(rank):
    """Endless stream of what customers of this counter ask, as token ids."""
    for turn in itertools.count():
        g = torch.Generator().manual_seed(turn * 13 + rank)
        ids = torch.randint(3, VOCAB, (1, 18), generator=g)
        if (turn * 3 + rank) % 80 == 76:  # a customer who only wants to say thank you
            ids[0, -1] = THANKS
        yield turn, ids


def reply(model, ids, temperature=0.8):
    start = ids.shape[1]
    polite = bool((ids == THANKS).any())
    for _ in range(MAX_NEW):
        scores = model(ids) / temperature
        scores[:, END] += 100.0 if polite else -100.0
        ids = torch.cat([ids, scores.argmax(1, keepdim=True)], 1)
        if int(ids[0, -1]) == END:
            break
    return ids[0, start:].tolist()


def main(turns=200):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = Decoder(rank, world)
    transcript = []
    for turn, ids in itertools.islice(questions(rank), turns):
        transcript.append(reply(model, ids))
        dist.barrier()  # replies of one turn are shown together
        if rank == 0 and turn % 5 == 0:
            print(f"turn {turn}: {len(transcript[-1])} tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
