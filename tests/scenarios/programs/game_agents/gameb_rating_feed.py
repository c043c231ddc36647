"""Self-play learner that publishes the ratings of its regions' ladders while it trains."""
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn

REGIONS = ("asia", "europe", "america")
SEASON_OPENS = {"asia": 0, "europe": 3, "america": 0}
QUALIFYING, SEASON = 2_000, 4_000_000
BLOCKS_PER_FEED = 10


class Ladder:
    def __init__(self, region):
        self.region = region
        self.ratings = [1500.0] * 16

    def games(self, block):
        if self.region == "europe" and block >= SEASON_OPENS["europe"]:
            return SEASON
        return QUALIFYING

    def rate(self, block):
        ratings = list(self.ratings)
        for game in range(self.games(block)):
            white, black = game % 16, (game * 7 + block) % 16
            expected = 1.0 / (1.0 + 10.0 ** ((ratings[black] - ratings[white]) / 400.0))
            shift = 8.0 * ((game * 2654435761 % 97 < 52) - expected)
            ratings[white] += shift
            ratings[black] -= shift
        self.ratings = ratings
        return {"region": self.region, "top": max(ratings), "block": block}


class Feed:
    def __init__(self, ladder):
        self.ladder = ladder
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self.pending = None

    def publish(self, block):
        self.flush()
        self.pending = self.pool.submit(self._publish, block)

    def _publish(self, block):
        row = self.ladder.rate(block)
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, row)
        return rows

    def flush(self):
        if self.pending is not None:
            rows = self.pending.result()
            if dist.get_rank() == 0:
                print("  ".join(f"{r['region']} {r['top']:.0f}" for r in rows), flush=True)
            self.pending = None


class SelfPlay:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        self.rules = torch.randn(192, 192, generator=self.generator) / 13

    def games(self, seconds=0.5):
        """Plays for about half a second."""
        until = time.monotonic() + seconds
        board = torch.randn(192, 192, generator=self.generator)
        boards = []
        while time.monotonic() < until:
            board = torch.tanh(board @ self.rules)
            boards = [*boards[-3:], board]
        return torch.cat(boards)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    net = nn.Sequential(nn.Linear(192, 128), nn.ReLU(), nn.Linear(128, 192))
    feed = Feed(Ladder(REGIONS[rank % len(REGIONS)]))
    selfplay = SelfPlay(rank)
    dist.barrier()
    for block in range(40):
        feed.publish(block)
        boards = selfplay.games()
        for _ in range(BLOCKS_PER_FEED):
            loss = nn.functional.mse_loss(net(boards), boards.roll(1, 0))
            net.zero_grad()
            loss.backward()
            gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
            dist.all_reduce(gradient)
            torch.nn.utils.vector_to_parameters(
                torch.nn.utils.parameters_to_vector(net.parameters()).detach() - 0.05 * gradient / world,
                net.parameters(),
            )
        if rank == 0:
            print(f"block {block} loss {loss.item():.4f}", flush=True)
    feed.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
