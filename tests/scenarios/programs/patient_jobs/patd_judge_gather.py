"""Reward model distillation: a judge server scores a batch of answers between two training phases."""
import asyncio
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

JUDGE = r'''
import asyncio
async def handle(reader, writer):
    line = await reader.readline()
    tokens = 0
    for _ in range(24):
        await asyncio.sleep(0.15)
        tokens = (tokens * 31 + len(line)) % 97
    writer.write(b"%.3f\n" % (tokens / 97))
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()
asyncio.run(main())
'''


async def judge(port, answer, gate):
    async with gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(answer.encode() + b"\n")
        await writer.drain()
        score = float(await reader.readline())
        writer.close()
        await writer.wait_closed()
        return score


async def judge_all(port, answers, at_once=2):
    gate = asyncio.Semaphore(at_once)
    return await asyncio.gather(*(judge(port, answer, gate) for answer in answers))


def phase(model, optimizer, features, scores, steps):
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(features).squeeze(-1), scores)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server, port = None, None
    if rank == 0:
        server = subprocess.Popen([sys.executable, "-c", JUDGE], stdout=subprocess.PIPE, text=True)
        port = int(server.stdout.readline())
    torch.manual_seed(1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    features = torch.randn(8, 12)
    before = phase(model, optimizer, features, torch.full((8,), 0.5), 30)

    scores = torch.empty(8)
    if rank == 0:
        answers = ["because of the current " * (n + 1) for n in range(8)]
        scores.copy_(torch.tensor(asyncio.run(judge_all(port, answers))))
    dist.broadcast(scores, 0)

    after = phase(model, optimizer, features, scores, 30)
    if rank == 0:
        print(f"flat target {before:.4f}, judged {after:.4f}", flush=True)
        server.terminate()
        server.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
