"""Illumination detector for medieval manuscripts: the second folio's tiles come from the library's image server."""
import asyncio
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

SIDE = 24


async def image_server():
    rendering = asyncio.Semaphore(2)

    async def one(reader, writer):
        region = int((await reader.readline()).split(b"/")[2])
        while (await reader.readline()).strip():
            pass
        async with rendering:
            await asyncio.sleep(2.2)
        pixels = bytes((region * 37 + i * 11) % 256 for i in range(SIDE * SIDE))
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: image/x-gray\r\n\r\n" + pixels)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


async def tile(port, polite, region):
    async with polite:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /iiif/{region}/full/0/default.gray HTTP/1.0\r\n\r\n".encode())
        await writer.drain()
        body = (await reader.read()).split(b"\r\n\r\n", 1)[1]
        writer.close()
        await writer.wait_closed()
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).float().view(1, SIDE, SIDE) / 255


async def folio(port, tiles):
    polite = asyncio.Semaphore(3)
    return torch.stack(await asyncio.gather(*(tile(port, polite, r) for r in range(tiles))))


def train(model, opt, images, n):
    for _ in range(n):
        time.sleep(0.05)
        pick = images[torch.randint(0, len(images), (4,))]
        loss = nn.functional.binary_cross_entropy_with_logits(model(pick).squeeze(1), pick.mean((1, 2, 3)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Sequential(nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 1)))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    train(model, opt, torch.rand(4, 1, SIDE, SIDE), 55)

    mine = torch.empty(4, 1, SIDE, SIDE)
    parts = None
    if rank == 0:
        server = subprocess.Popen([sys.executable, __file__, "images"], stdout=subprocess.PIPE, text=True)
        whole = asyncio.run(folio(int(server.stdout.readline()), 4 * world))
        server.kill()
        server.wait()
        parts = [p.contiguous() for p in whole.chunk(world)]
    dist.scatter(mine, parts, src=0)

    print(f"rank {rank} {train(model, opt, mine, 50):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    asyncio.run(image_server()) if sys.argv[1:] == ["images"] else main()
