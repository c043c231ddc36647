"""Preference scores for a crew assistant: answers are judged by a service, a few requests at a time, then a reward head is fitted."""
import asyncio
import json
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PROCEDURES = ["airlock purge", "CO2 scrubber swap", "glovebox leak", "EVA glove check", "toilet pump", "fire in node 2"]


class Judge:
    """Stands in for the judge model: reads a line of JSON, thinks, answers with a line of JSON."""

    def __init__(self, thinks=1.9):
        self.thinks = thinks
        self.port = None
        self.up = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve()), name="judge", daemon=True).start()
        self.up.wait()

    async def answer(self, reader, writer):
        question = json.loads(await reader.readline())
        await asyncio.sleep(self.thinks)
        score = (len(question["answer"]) % 7) / 7
        writer.write(json.dumps({"id": question["id"], "score": score}).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def serve(self):
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.up.set()
        async with server:
            await server.serve_forever()


async def ask(port, number, text, slots):
    async with slots:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(json.dumps({"id": number, "answer": text}).encode() + b"\n")
        await writer.drain()
        reply = json.loads(await asyncio.wait_for(reader.readline(), timeout=30))
        writer.close()
        return reply["score"]


async def judge_all(port, answers, at_once=3):
    slots = asyncio.Semaphore(at_once)
    return await asyncio.gather(*(ask(port, n, a, slots) for n, a in enumerate(answers)))


def answers_of(rank):
    # the night shift asked the most
    count = [3, 3, 21][rank]
    return [f"{PROCEDURES[k % len(PROCEDURES)]}: step {k} of {count + rank}" for k in range(count)]


def fit(head, opt, steps, goal):
    for _ in range(steps):
        x = torch.randn(16, 12)
        loss = (head(x).squeeze(1) - goal).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    judge = Judge() if rank == 0 else None
    port = [judge.port if judge else None]
    dist.broadcast_object_list(port, src=0)
    head = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.AdamW(head.parameters(), lr=1e-3)
    fit(head, opt, 100, 0.5)
    scores = asyncio.run(judge_all(port[0], answers_of(rank)))
    mine = torch.tensor([sum(scores), float(len(scores))])
    table = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(table, mine)
    total = torch.stack(table).sum(dim=0)
    loss = fit(head, opt, 100, float(total[0] / total[1]))
    print(f"rank {rank}: {int(mine[1])} of {int(total[1])} answers judged, loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
