"""Self-play with a rating ladder per community; charts are exchanged beside the training."""
import math
import random
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

COMMUNITIES = {"blitz": 20, "open": 400_000, "school": 15}  # ratings known from earlier seasons


class Ladder:
    def __init__(self, community, known):
        rng = random.Random(community)
        self.community = community
        self.ratings = [rng.gauss(1500, 250) for _ in range(known)]
        self.charts = None

    def add(self, rating):
        self.ratings.append(rating)

    def density(self, bins=64):
        """Kernel density of the ratings between 500 and 2500."""
        curve = [0.0] * bins
        for rating in self.ratings:
            for b in range(bins):
                distance = (500 + 2000 * b / bins - rating) / 60
                curve[b] += math.exp(-0.5 * distance * distance)
        top = max(curve)
        return [value / top for value in curve]

    def exchange(self):
        chart = {"community": self.community, "curve": self.density()}
        charts = [None] * dist.get_world_size()
        dist.all_gather_object(charts, chart)
        self.charts = charts

    def publish(self):
        threading.Thread(target=self.exchange, name="charts", daemon=True).start()


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(361, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU())
        self.policy = nn.Linear(768, 361)

    def forward(self, boards):
        return self.policy(self.trunk(boards))


@torch.no_grad()
def self_play(player, plies=6, games=320):
    boards = torch.zeros(games, 361)
    moves = []
    for ply in range(plies):
        choice = torch.softmax(player(boards), -1).multinomial(1).squeeze(1)
        boards[torch.arange(games), choice] = 1.0 if ply % 2 else -1.0
        moves.append(choice)
    return boards, moves[-1]


def main(steps=600, publish_every=24):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    player = DDP(Player(), bucket_cap_mb=25)
    optimizer = torch.optim.SGD(player.parameters(), lr=1e-2, momentum=0.9)
    ladder = Ladder(*list(COMMUNITIES.items())[rank % len(COMMUNITIES)])
    for step in range(1, steps + 1):
        boards, target = self_play(player.module)
        loss = nn.functional.cross_entropy(player(boards), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ladder.add(1500 + 10 * loss.item())
        if step % publish_every == 0:
            ladder.publish()
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
