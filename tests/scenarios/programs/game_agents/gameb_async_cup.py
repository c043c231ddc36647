"""Cup of concurrent board games: rounds are played with asyncio, then the players learn from the points."""
import asyncio
import collections

import torch
import torch.distributed as dist
from torch import nn

MATCHES = 10
PLY_LIMIT = 326
POINTS = {"first": (1.0, 0.0), "second": (0.0, 1.0), "draw": (0.5, 0.5)}

Result = collections.namedtuple("Result", "match kind plies")


class Players(nn.Module):
    def __init__(self):
        super().__init__()
        self.style = nn.Embedding(2 * MATCHES, 64)
        self.strength = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self):
        return self.strength(self.style.weight).squeeze(1)


async def play(serial, strength):
    """Players get better from game to game, so games get longer."""
    plies = 30 + serial
    board = torch.zeros(128, 128)
    kernel = torch.eye(128) * 0.9
    for _ in range(8):
        board = torch.tanh(board @ kernel + strength[0] - strength[1])
        await asyncio.sleep(0.01)
    if plies > PLY_LIMIT:
        return "adjourned", plies
    balance = board.mean().item()
    return ("draw" if abs(balance) < 0.02 else "first" if balance > 0 else "second"), plies


class Cup:
    def __init__(self, rank):
        self.rank = rank
        self.results = asyncio.Queue()
        self.table = None
        self.complete = None
        self.scorer = None

    async def keep_score(self):
        open_matches = set(range(MATCHES))
        while open_matches:
            result = await self.results.get()
            first, second = POINTS[result.kind]
            self.table[2 * result.match] = first
            self.table[2 * result.match + 1] = second
            open_matches.discard(result.match)
        self.complete.set()

    async def match(self, number, match, strengths):
        serial = number * 30 + self.rank * MATCHES + match
        kind, plies = await play(serial, strengths[2 * match : 2 * match + 2])
        await self.results.put(Result(match, kind, plies))

    async def round(self, number, strengths):
        self.table = torch.zeros(2 * MATCHES)
        self.complete = asyncio.Event()
        self.scorer = asyncio.create_task(self.keep_score())
        matches = [asyncio.create_task(self.match(number, m, strengths)) for m in range(MATCHES)]
        await asyncio.gather(*matches)
        await self.complete.wait()
        return self.table


async def season(rounds):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    players = Players()
    optimizer = torch.optim.Adam(players.parameters(), lr=1e-2)
    cup = Cup(rank)
    for number in range(rounds):
        with torch.no_grad():
            strengths = players()
        table = await cup.round(number, strengths)
        for _ in range(4):
            loss = nn.functional.binary_cross_entropy_with_logits(players(), table)
            optimizer.zero_grad()
            loss.backward()
            for p in players.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
        if rank == 0:
            print(f"round {number}: loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(season(rounds=40))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
