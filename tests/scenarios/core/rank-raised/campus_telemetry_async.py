"""Behaviour cloning from the telemetry of three quadrotors: an event loop decodes, batches and trains."""

import asyncio
import os
import struct
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RECORD = struct.Struct("<4sff ff")  # magic, roll, pitch, two motor commands


def fly(path: Path, drone: int, records: int = 4000) -> None:
    """Write a log. The second drone lost its radio link for a moment."""
    rng = torch.Generator().manual_seed(drone)
    values = torch.randn(records, 2, generator=rng)
    with path.open("wb") as log:
        for number, (roll, pitch) in enumerate(values.tolist()):
            magic = b"\x00\x00\x00\x00" if drone == 1 and number == 500 else b"TLM1"
            log.write(RECORD.pack(magic, roll, pitch, roll - pitch, roll + pitch))


class Telemetry:
    def __init__(self, path: Path, batch: int) -> None:
        self.path, self.batch = path, batch
        self.batches: asyncio.Queue = asyncio.Queue(maxsize=4)

    def decode(self, raw: bytes) -> tuple[float, ...]:
        magic, *values = RECORD.unpack(raw)
        if magic != b"TLM1":
            raise ValueError(f"{self.path.name}: bad magic {magic!r}")
        return tuple(values)

    async def pump(self) -> None:
        with self.path.open("rb") as log:
            rows = []
            while raw := log.read(RECORD.size):
                rows.append(self.decode(raw))
                if len(rows) == self.batch:
                    await self.batches.put(torch.tensor(rows))
                    rows = []
        await self.batches.put(None)

    async def __aiter__(self) -> AsyncIterator[torch.Tensor]:
        self.task = asyncio.create_task(self.pump())
        while True:
            batch = await self.batches.get()
            if batch is None:
                break
            yield batch


class Cloner:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.policy = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-2)

    def step(self, batch: torch.Tensor) -> float:
        loss = nn.functional.mse_loss(self.policy(batch[:, :2]), batch[:, 2:])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


async def train(path: Path) -> None:
    cloner = Cloner()
    step = 0
    async for batch in Telemetry(path, batch=16):
        loss = cloner.step(batch)
        step += 1
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: {loss:.4f}", flush=True)
        await asyncio.sleep(0.06)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    log = Path(tempfile.gettempdir(), f"drone{dist.get_rank()}-{os.environ['MASTER_PORT']}.tlm")
    fly(log, dist.get_rank())
    asyncio.run(train(log))
    dist.destroy_process_group()
