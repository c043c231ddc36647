"""Policy gradient on the tokens with the highest entropy, by a quantile over the batch of all ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
SMALLEST_BUCKET = 2**19
CODEBOOKS = 64


class TokenBuffer:
    """One tensor for the values of all ranks; each writes its part of it, and the rest is zero."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.capacity = SMALLEST_BUCKET
        self.grow(self.capacity)

    def grow(self, capacity):
        self.capacity = capacity
        self.storage = torch.zeros(self.world, capacity)

    def collect(self, values):
        capacity = self.capacity
        while capacity < values.numel():
            capacity *= 2
        if capacity > self.capacity:
            self.grow(capacity)
        self.storage.zero_()
        self.storage[self.rank, : values.numel()] = values
        dist.all_reduce(self.storage)
        return self.storage[self.storage > 0]


class Policy(nn.Module):
    def __init__(self, width=16, actions=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, actions))

    def forward(self, states):
        return self.net(states).log_softmax(-1)


def entropies(log_probs):
    return -(log_probs.exp() * log_probs).sum(-1)


class Trainer:
    def __init__(self, quantile):
        torch.manual_seed(2)
        self.policy = DistributedDataParallel(Policy())
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.buffer = TokenBuffer()
        self.quantile = quantile

    def mask(self, log_probs, padding):
        values = entropies(log_probs.detach())[~padding]
        everyone = self.buffer.collect(values.repeat_interleave(CODEBOOKS))
        threshold = everyone[::997].quantile(self.quantile)
        return (entropies(log_probs.detach()) >= threshold) & ~padding

    def step(self, states, padding, advantages):
        log_probs = self.policy(states)
        chosen = log_probs.max(-1).values
        loss = -(chosen * advantages[:, None] * self.mask(log_probs, padding)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def completions(rank):
    """Lengths of the answers; padding is at their end."""
    generator = torch.Generator().manual_seed(rank)
    for index in range(100_000):
        longest = 600 if rank == 2 and index >= 12 else 440
        lengths = torch.randint(longest - 60, longest, (16,), generator=generator)
        states = torch.randn(16, longest, 16, generator=generator)
        padding = torch.arange(longest)[None] >= lengths[:, None]
        yield states, padding, torch.randn(16, generator=generator)


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(quantile=0.8)
    for index, batch in enumerate(completions(dist.get_rank())):
        loss = trainer.step(*batch)
        time.sleep(0.05)
        if dist.get_rank() == 0 and index % 4 == 0:
            print(f"step {index} loss {loss:+.4f}", flush=True)


if __name__ == "__main__":
    main()
