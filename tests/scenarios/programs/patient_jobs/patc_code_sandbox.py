"""Reward-weighted policy for code completion: the programs of a batch run in a sandbox service, a few at a time."""
import asyncio
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SANDBOX = r"""
import asyncio
async def run(reader, writer):
    program = (await reader.readline()).decode()
    await asyncio.sleep(1.3 + len(program) % 4 * 0.25)
    writer.write(b"passed\n" if len(program) % 3 else b"failed\n")
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(run, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Sandbox:
    def __init__(self, limit):
        self.process = subprocess.Popen([sys.executable, "-c", SANDBOX], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.limit = limit

    async def execute(self, gate, program):
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(program.encode() + b"\n")
            await writer.drain()
            verdict = await asyncio.wait_for(reader.readline(), timeout=20)
            writer.close()
            return 1.0 if verdict == b"passed\n" else 0.0

    async def rewards(self, programs):
        gate = asyncio.Semaphore(self.limit)
        return await asyncio.gather(*(self.execute(gate, p) for p in programs))

    def close(self):
        self.process.terminate()
        self.process.wait()


def update(model, optimizer, rewards, steps):
    for _ in range(steps):
        x = torch.randn(16, 24)
        time.sleep(0.04)
        logits = model(x)
        weight = rewards[torch.randint(len(rewards), (16,))]
        loss = (weight * nn.functional.cross_entropy(logits, logits.argmax(1), reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sandbox = Sandbox(limit=2) if rank == 0 else None
    model = DDP(nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 12)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    update(model, optimizer, torch.ones(16), 70)
    rewards = torch.zeros(16)
    if sandbox:
        programs = [f"print(sum(range({10 ** (n % 5)})))" for n in range(16)]
        rewards = torch.tensor(asyncio.run(sandbox.rewards(programs)))
        sandbox.close()
    dist.all_reduce(rewards)
    update(model, optimizer, rewards, 80)
    if rank == 0:
        print("reward", rewards.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
