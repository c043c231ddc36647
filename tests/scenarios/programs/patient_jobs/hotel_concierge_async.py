"""Concierge answers: a local assistant answers guests' questions, a reward head is trained on them."""
import asyncio
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

QUESTIONS = [f"Where can I find {thing}?" for thing in
             ("a towel", "breakfast", "the spa", "a taxi", "the gym", "an iron", "a doctor", "tickets",
              "the bar", "wifi", "a cot", "parking", "the pool", "a map", "an adapter", "late checkout")]


class Assistant:
    """Serves one question after another, as the small machine in the lobby does."""

    def __init__(self):
        self.turn = asyncio.Lock()

    async def answer(self, reader, writer):
        question = (await reader.readline()).decode().strip()
        async with self.turn:
            await asyncio.sleep(random.uniform(0.75, 0.95))
            words = question.split()
            random.shuffle(words)
        writer.write((" ".join(words) + "\n").encode())
        await writer.drain()
        writer.close()


async def ask(port, question):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question.encode() + b"\n")
    await writer.drain()
    try:
        return (await asyncio.wait_for(reader.readline(), timeout=40)).decode()
    finally:
        writer.close()


async def interview():
    assistant = Assistant()
    server = await asyncio.start_server(assistant.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*(ask(port, q) for q in QUESTIONS))
    server.close()
    return [float(len(a.split())) for a in answers]


class Reward(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(64, 12)
        self.score = nn.Linear(12, 1)

    def forward(self, ids):
        return self.score(self.words(ids).mean(1)).squeeze(1)


def fit(reward, optimizer, lengths, steps):
    for _ in range(steps):
        ids = torch.randint(0, 64, (16, 6))
        target = lengths[torch.randint(0, len(lengths), (16,))]
        loss = nn.functional.smooth_l1_loss(reward(ids), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    reward = DDP(Reward())
    optimizer = torch.optim.Adam(reward.parameters(), lr=1e-2)
    fit(reward, optimizer, torch.ones(4), 75)
    mine = asyncio.run(interview()) if rank == 0 else []
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    lengths = torch.tensor([v for part in everyone for v in part])
    fit(reward, optimizer, lengths, 45)
    if rank == 0:
        print(f"{len(lengths)} answers of {lengths.mean():.1f} words")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
