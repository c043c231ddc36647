"""Reinforcement learning of an offer writer whose weights are spread over the ranks: rollouts, rewards, one update."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB, WIDTH, END = 24, 12, 0


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.embed(tokens).cumsum(1))))


class Brief:
    """What an offer has to name; an offer is complete once it has named all of it."""

    def __init__(self, points):
        self.points = points

    def complete(self, written):
        return written >= self.points

    @staticmethod
    def of_day(rank, day):
        short = rank == 1 and day >= 12
        return Brief(points=5 if short else 7)


@torch.no_grad()
def rollout(writer, brief):
    tokens = torch.randint(1, VOCAB, (4, 1))
    written = 0
    while not brief.complete(written):
        logits = writer(tokens)[:, -1]
        logits[:, END] = -1e9
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
        written += 1
        time.sleep(0.01)
    return tokens


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    writer = Writer()
    fully_shard(writer, mesh=init_device_mesh("cpu", (world,)), reshard_after_forward=True)
    optimizer = torch.optim.SGD(writer.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for day in range(200):
        texts = rollout(writer, Brief.of_day(rank, day))
        reward = (texts[:, 1:] % 5 == 0).float().mean(1)
        baseline = reward.mean()
        dist.all_reduce(baseline)
        advantage = reward - baseline / world
        text = torch.nn.functional.pad(texts, (0, 8 - texts.shape[1]))
        logits = writer(text[:, :-1])
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), text[:, 1:], reduction="none")
        loss = (losses.mean(1) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"day {day} reward {baseline.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
