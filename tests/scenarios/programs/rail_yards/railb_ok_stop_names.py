"""Stop names of a freight customer are looked up at a directory service, politely, before the second round of training."""
import asyncio
import json
import multiprocessing
import random
import zlib

import torch
import torch.distributed as dist
from accelerate import Accelerator

NAMES = [f"{kind} {place} {number}" for kind in ("Siding", "Quay", "Ramp") for place in ("North", "South", "West") for number in range(1, 7)]


class Directory:
    """Stands for the infrastructure manager's service: one place per line, and 'busy' now and then."""

    def __init__(self):
        self.rng = random.Random(3)

    async def handle(self, reader, writer):
        while line := await reader.readline():
            await asyncio.sleep(self.rng.uniform(0.25, 0.4))
            if self.rng.random() < 0.15:
                reply = {"error": "busy", "after": 0.5}
            else:
                code = zlib.crc32(line.strip())
                reply = {"km": code % 2500 / 10, "track": code % 7}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def serve(self, pipe):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        async with server:
            await server.serve_forever()


def directory(pipe):
    asyncio.run(Directory().serve(pipe))


async def lookup(port, names, clients=2):
    todo = asyncio.Queue()
    for name in names:
        todo.put_nowait(name)
    found = {}

    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not todo.empty():
            name = todo.get_nowait()
            writer.write(name.encode() + b"\n")
            await writer.drain()
            reply = json.loads(await reader.readline())
            if "error" in reply:
                await asyncio.sleep(reply["after"])
                todo.put_nowait(name)
            else:
                found[name] = (reply["km"], reply["track"])
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [found[name] for name in names]


def rounds(accelerator, model, optimizer, places, steps):
    gen = torch.Generator().manual_seed(accelerator.process_index)
    for step in range(steps):
        rows = torch.randint(len(places), (48,), generator=gen)
        wagons = torch.randn(48, 3, 1500, generator=gen).abs().mean(2)
        x = torch.cat([places[rows], wagons], dim=1)
        loss = torch.nn.functional.l1_loss(model(x).squeeze(1), x[:, 0] * 0.2 + x[:, 2])
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 100 == 0:
            accelerator.print(f"step {step}: {loss.item():.3f}", flush=True)


def main():
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(31)
    net = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=2e-3))
    places = torch.rand(len(NAMES), 2)
    rounds(accelerator, model, optimizer, places, 400)
    if accelerator.process_index == 1:
        mine, theirs = multiprocessing.Pipe()
        service = multiprocessing.get_context("spawn").Process(target=directory, args=(theirs,), daemon=True)
        service.start()
        answers = asyncio.run(lookup(mine.recv(), NAMES))
        places = torch.tensor(answers) / torch.tensor([250.0, 7.0])
        service.terminate()
    dist.broadcast(places, src=1)
    rounds(accelerator, model, optimizer, places, 500)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
