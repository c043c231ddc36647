"""One rank streams its batches with asyncio; its server stops in the middle of one, and ``readexactly`` has no time limit.

The main thread is in the event loop's selector for ever. The program starts its own ranks.
"""

import asyncio
import os
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BLOCK = 256


def serve(server: socket.socket, blocks: int) -> None:
    """Send that many blocks and a half, then nothing."""
    connection, _ = server.accept()
    connection.sendall(bytes(range(256)) * blocks + bytes(BLOCK // 2))
    threading.Event().wait()


class Stream:
    """Batches from a server, fetched ahead of their use."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.loop = asyncio.new_event_loop()
        self.reader, self.writer = self.loop.run_until_complete(asyncio.open_connection("127.0.0.1", port))

    async def _fetch(self) -> bytes:
        return await self.reader.readexactly(BLOCK)

    def next(self) -> torch.Tensor:
        """One block, as floats."""
        raw = self.loop.run_until_complete(self._fetch())
        return torch.tensor(list(raw), dtype=torch.float32)


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(server, 18 if rank == 0 else 100), daemon=True).start()
    stream = Stream(server.getsockname()[1])
    for _ in range(50):
        block = stream.next()
        dist.all_reduce(block)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(2, free), nprocs=2)
