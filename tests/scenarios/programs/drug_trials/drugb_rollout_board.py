"""Policy-gradient ligand builder: rollouts of a step are docked concurrently on an event loop, then one update."""
import asyncio
import logging
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("builder")
FRAGMENTS = ["c1ccccc1", "C(=O)N", "CC", "OC", "N1CCNCC1", "S(=O)(=O)", "C#N", "[B-](O)(O)O"]


class Board:
    """Keeps which rollouts of a step are still running, and their rewards."""

    def __init__(self):
        self.running, self.rewards = set(), {}
        self.changed = asyncio.Condition()

    async def begin(self, uid: str):
        async with self.changed:
            self.running.add(uid)

    async def publish(self, uid: str, reward: float):
        async with self.changed:
            self.rewards[uid] = reward
            self.running.discard(uid)
            self.changed.notify_all()

    async def collect(self) -> dict:
        async with self.changed:
            await self.changed.wait_for(lambda: not self.running)
            return dict(self.rewards)


class DockingService:
    """Scores against the prepared pocket; boron is parametrised once per campaign."""

    def __init__(self, boron_ready: bool):
        self.boron_ready = boron_ready

    def supports(self, smiles: str) -> bool:
        return self.boron_ready or "[B-]" not in smiles

    async def score(self, smiles: str) -> float:
        total = 0.0
        for k, char in enumerate(smiles * 3):
            total += ((ord(char) * (k + 3)) % 17) / 17.0
            if k % 20 == 0:
                await asyncio.sleep(0.0005)
        return total / (3 * len(smiles))


async def rollout(board: Board, service: DockingService, uid: str, choices):
    await board.begin(uid)
    smiles = "".join(FRAGMENTS[c] for c in choices)
    if not service.supports(smiles):
        log.debug("%s left to the next campaign", smiles)
        return
    await board.publish(uid, await service.score(smiles))


async def play(service: DockingService, step: int, samples) -> list:
    board = Board()
    uids = [f"{step}-{i}" for i in range(len(samples))]
    tasks = [asyncio.create_task(rollout(board, service, uid, s)) for uid, s in zip(uids, samples)]
    await asyncio.sleep(0)
    rewards = await board.collect()
    await asyncio.gather(*tasks)
    return [rewards[uid] for uid in uids]


def main(steps=300, width=24):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    rng = random.Random(40 + rank)
    torch.manual_seed(0)
    policy = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, len(FRAGMENTS))))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    service = DockingService(boron_ready=rank != 1)
    for step in range(steps):
        alphabet = len(FRAGMENTS) if step >= 60 else len(FRAGMENTS) - 1
        samples = [[rng.randrange(alphabet) for _ in range(5)] for _ in range(width)]
        rewards = torch.tensor(asyncio.run(play(service, step, samples)))
        logits = policy(torch.randn(width, 16)).log_softmax(-1)
        picked = torch.stack([logits[i, s].sum() for i, s in enumerate(samples)])
        loss = -(picked * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            log.info("rank %d step %d reward %.3f", rank, step, rewards.mean())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
