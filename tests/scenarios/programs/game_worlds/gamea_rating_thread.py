"""Tree-search self-play with a rating service in a side thread: Elo of all players is exchanged while the next games are searched."""
import random
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

PLAYERS = 16


class Ratings:
    """Elo over all games known to this rank; recomputed from scratch, since old results may be corrected."""

    def __init__(self, seed):
        self.rng, self.games, self.table = random.Random(seed), [], torch.full((PLAYERS,), 1500.0)

    def add(self, games):
        for _ in range(games):
            a, b = self.rng.sample(range(PLAYERS), 2)
            self.games.append((a, b, self.rng.random() < 0.5 + 0.02 * (a - b)))

    def add_season(self, games):
        self.games += [(i % PLAYERS, (i * 7 + 3) % PLAYERS, i % 3 == 0) for i in range(games)]

    def recompute(self, passes=12):
        elo = [1500.0] * PLAYERS
        for _ in range(passes):
            for a, b, won in self.games:
                expected = 1 / (1 + 10 ** ((elo[b] - elo[a]) / 400))
                delta = 16 * (won - expected)
                elo[a] += delta
                elo[b] -= delta
        return torch.tensor(elo)


class RatingService:
    def __init__(self, ratings):
        self.ratings, self.thread = ratings, None

    def publish(self):
        self.thread = threading.Thread(target=self._exchange, name="ratings", daemon=True)
        self.thread.start()

    def _exchange(self):
        mine = self.ratings.recompute()
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        self.ratings.table = torch.stack(everyone).mean(0)

    def collect(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class SelfPlay:
    def __init__(self, net, seconds_per_round=0.4):
        self.net, self.seconds = net, seconds_per_round

    def search(self):
        """As many simulations as fit into the time control."""
        boards, until = torch.randint(-1, 2, (32, 81)).float(), time.monotonic() + self.seconds
        visits = torch.zeros(32, 81)
        with torch.no_grad():
            while time.monotonic() < until:
                visits += self.net(boards).softmax(1)
                time.sleep(0.004)
        return boards, visits / visits.sum(1, keepdim=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(81, 256), nn.ReLU(), nn.Linear(256, 81))
    torch.manual_seed(10 + rank)
    optim = torch.optim.SGD(net.parameters(), lr=0.05)
    ratings = Ratings(seed=rank)
    service, play = RatingService(ratings), SelfPlay(net)
    for round_ in range(500):
        ratings.add(200)
        if rank == 0 and round_ == 9:
            ratings.add_season(400_000)  # results of the online season, uploaded to this host
        service.publish()
        boards, policy = play.search()
        loss = -(policy * net(boards).log_softmax(1)).sum(1).mean()
        optim.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        dist.all_reduce(flat)
        for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad.copy_(g.view_as(p) / dist.get_world_size())
        optim.step()
        service.collect()
        if rank == 1:
            print(f"round {round_} loss {loss.item():.3f} best {ratings.table.max().item():.0f}", flush=True)
    dist.destroy_process_group()


main()
