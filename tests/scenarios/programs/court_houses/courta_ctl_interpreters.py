"""Interpreters' summaries, evaluated by a remote reader at the end of each round. Starts its four processes itself.

    python courta_ctl_interpreters.py
"""

import asyncio
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 4
# Summaries to be read after each round, by booth.
ROUNDS = [{"booth-0": 2, "booth-1": 3, "booth-2": 2, "booth-3": 3}, {"booth-0": 2, "booth-1": 34, "booth-2": 3, "booth-3": 2}]


class RemoteReader:
    """The reader's end: takes a line, reads it at its own pace and answers with a mark."""

    def __init__(self, seconds=0.85):
        self.seconds = seconds
        self.ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True).start()
        self.ready.wait()

    async def serve(self):
        server = await asyncio.start_server(self.read, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        async with server:
            await server.serve_forever()

    async def read(self, reader, writer):
        line = await reader.readline()
        await asyncio.sleep(self.seconds + (len(line) % 5) * 0.02)
        writer.write(b"%d\n" % (sum(line) % 10))
        await writer.drain()
        writer.close()


async def mark(port, summary, seats):
    async with seats:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(summary.encode() + b"\n")
        await writer.drain()
        answer = await reader.readline()
        writer.close()
        return int(answer)


async def marks(port, summaries):
    seats = asyncio.Semaphore(2)
    return await asyncio.gather(*(mark(port, summary, seats) for summary in summaries))


def booth(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    remote = RemoteReader()
    torch.manual_seed(20)
    model = DistributedDataParallel(nn.LSTM(8, 8, batch_first=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for number, lists in enumerate(ROUNDS):
        for _ in range(50):
            speech = torch.randn(4, 10, 8, generator=generator)
            heard, _ = model(speech)
            loss = (heard - speech).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        summaries = [f"booth {rank} round {number} summary {i}" for i in range(lists[f"booth-{rank}"])]
        given = asyncio.run(marks(remote.port, summaries))
        total = torch.tensor([float(sum(given)), float(len(given))])
        dist.all_reduce(total)
        if rank == 0:
            print(f"round {number}: {int(total[1])} summaries, mark {total[0] / total[1]:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(booth, args=(free_port(),), nprocs=WORLD)
