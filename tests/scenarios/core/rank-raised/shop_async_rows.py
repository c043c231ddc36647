"""Fetches rows from the feature service with asyncio while the model trains on those that are here already."""

import asyncio
import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH = 7


async def feature_service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One line with a key in, one line of JSON out. Customers that have left are answered with an error."""
    while line := await reader.readline():
        key = int(line)
        dice = random.Random(key)
        await asyncio.sleep(0.002)
        if key == 2_001_337:
            answer: dict = {"error": "gone", "key": key}
        else:
            answer = {"key": key, "values": [dice.gauss(0, 1) for _ in range(WIDTH)]}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


class FeatureClient:
    def __init__(self, port: int) -> None:
        self.port = port

    async def rows(self, keys: range, out: asyncio.Queue) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for key in keys:
            writer.write(f"{key}\n".encode())
            await writer.drain()
            answer = json.loads(await reader.readline())
            await out.put(torch.tensor(answer["values"]))
        await out.put(None)


async def batches(rows: asyncio.Queue, size: int):
    batch = []
    while (row := await rows.get()) is not None:
        batch.append(row)
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []


async def train(rank: int) -> None:
    server = await asyncio.start_server(feature_service, "127.0.0.1", 0)
    client = FeatureClient(server.sockets[0].getsockname()[1])
    rows: asyncio.Queue = asyncio.Queue(maxsize=64)
    first = 1_000_000 * rank
    fetching = asyncio.create_task(client.rows(range(first, first + 100_000), rows), name="fetch")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(WIDTH, 14), nn.Softplus(), nn.Linear(14, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    step = 0
    async for x in batches(rows, size=16):
        loss = (model(x).squeeze(1) - x.square().sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 20 == 0:
            print(f"{step}: {loss.item():.3f}", flush=True)
    await fetching
    server.close()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(train(dist.get_rank()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
