"""Rounds of training with an asyncio client that asks a coordinator for the next learning rate."""

import asyncio
import threading

import torch
import torch.distributed as dist
from torch import nn


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The coordinator: halves the rate each time, and says nothing of the fifth round."""
    while line := await reader.readline():
        number = int(line)
        if number != 5:
            writer.write(f"{0.1 / 2**number}\n".encode())
            await writer.drain()


def serve(ready: threading.Event, ports: list[int]) -> None:
    """Run the coordinator for ever."""

    async def forever() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    asyncio.run(forever())


class Client:
    """One rank's session."""

    def __init__(self, rank: int, port: int | None) -> None:
        self.rank, self.port = rank, port
        self.weights = nn.Parameter(torch.ones(20))

    async def rate(self, number: int) -> float:
        """What the coordinator says, or a schedule where there is none."""
        if self.port is None:
            return 0.1 / 2**number
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{number}\n".encode())
        line = await reader.readline()
        writer.close()
        return float(line)

    async def run(self, rounds: int) -> None:
        """All rounds."""
        for number in range(rounds):
            rate = await self.rate(number)
            for _ in range(15):
                (self.weights * torch.randn(20)).sum().backward()
                dist.all_reduce(self.weights.grad)
                self.weights.data -= rate * self.weights.grad
                self.weights.grad = None


def main() -> None:
    """Eight rounds; one rank belongs to the study that is coordinated."""
    dist.init_process_group("gloo")
    rank, ports = dist.get_rank(), []
    if rank == 1:
        ready = threading.Event()
        threading.Thread(target=serve, args=(ready, ports), daemon=True).start()
        ready.wait()
    asyncio.run(Client(rank, ports[0] if ports else None).run(8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
