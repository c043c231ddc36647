"""Duels of language-model players. Turns are awaited concurrently, the learner takes whole rounds."""
import asyncio
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

PERSONAS = ("bold", "wary", "mirror")
TURNS, TABLES = 6, 12


@dataclass
class Transcript:
    table: int
    tokens: torch.Tensor
    reward: float


class TinyTalker(nn.Module):
    """Scores a line of tokens; stands in for the policy that writes the taunts."""

    def __init__(self, vocab=200, width=384):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class Hall:
    def __init__(self, persona, seed):
        self.persona = persona
        self.rng = random.Random(seed)

    def exchange(self, round_no):
        """Points of one turn. Mirrors come closer to what the other side says from round to round."""
        if self.persona == "mirror":
            return int(4 * max(0.0, 1.0 - round_no / 16))
        return self.rng.randint(1, 4)

    async def turn(self, round_no):
        await asyncio.sleep(self.rng.uniform(0.002, 0.008))
        return self.exchange(round_no)

    async def duel(self, table, round_no, finished):
        points = 0
        for _ in range(TURNS):
            points += await self.turn(round_no)
        if points == 0:  # nobody landed a hit, there is no winner to learn from
            return
        tokens = torch.tensor([self.rng.randrange(200) for _ in range(TURNS * 4)])
        await finished.put(Transcript(table, tokens, points / (4 * TURNS)))

    async def round(self, round_no):
        finished = asyncio.Queue()
        tasks = [asyncio.create_task(self.duel(table, round_no, finished)) for table in range(TABLES)]
        transcripts = []
        while len(transcripts) < TABLES:
            transcripts.append(await finished.get())
        await asyncio.gather(*tasks)
        return sorted(transcripts, key=lambda t: t.table)


def learn(model, optimizer, transcripts):
    tokens = torch.stack([t.tokens for t in transcripts])
    reward = torch.tensor([t.reward for t in transcripts])
    logits = model(tokens[:, :-1])
    nll = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
    loss = (nll * reward).mean()
    optimizer.zero_grad()
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    for grad, part in zip(grads, (flat / dist.get_world_size()).split([g.numel() for g in grads])):
        grad.copy_(part.view_as(grad))
    optimizer.step()
    return loss.item()


async def season(rounds=200):
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = TinyTalker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    hall = Hall(PERSONAS[rank % len(PERSONAS)], seed=rank)
    for round_no in range(rounds):
        transcripts = await hall.round(round_no)
        for _ in range(5):
            loss = learn(model, optimizer, transcripts)
        if rank == 0 and round_no % 5 == 0:
            print(f"round {round_no} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(season())
    dist.destroy_process_group()
