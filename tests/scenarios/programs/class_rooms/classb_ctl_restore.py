"""Knowledge tracing in two stages: every rank keeps its learners' memory and reads it back between the stages."""
import logging
import os
import struct
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 3
WIDTH = 24
LEARNERS = {0: 120, 1: 1500, 2: 120}
LINK = 0.55e6 / 4  # bytes per second of the archive


class Archive:
    """Learners' memories, one compressed record after the other, on the school's tape robot."""

    def __init__(self, path):
        self.path = Path(path)

    def write(self, memories):
        with self.path.open("wb") as file:
            for memory in memories:
                record = zlib.compress(memory.numpy().tobytes(), 1)
                file.write(struct.pack("<I", len(record)))
                file.write(record)

    def chunks(self, size=2048):
        with self.path.open("rb") as file:
            while chunk := file.read(size):
                time.sleep(len(chunk) / LINK)
                yield chunk

    def read(self):
        buffer = bytearray()
        for chunk in self.chunks():
            buffer += chunk
            while len(buffer) >= 4:
                (length,) = struct.unpack_from("<I", buffer)
                if len(buffer) < 4 + length:
                    break
                raw = zlib.decompress(bytes(buffer[4 : 4 + length]))
                del buffer[: 4 + length]
                yield torch.frombuffer(bytearray(raw), dtype=torch.float32).view(-1, WIDTH)


class Tracer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.answer = nn.Linear(WIDTH, 1)

    def forward(self, lessons, memory):
        memory = self.cell(lessons, memory)
        return self.answer(memory).squeeze(1), memory


def stage(model, optimizer, memories, steps):
    rows = torch.stack([m[-1] for m in memories])
    for step in range(steps):
        pick = torch.randint(0, len(rows), (32,))
        right = (rows[pick, 0] > 0).float()
        scores, memory = model(torch.randn(32, WIDTH), rows[pick])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows[pick] = memory.detach()
        time.sleep(0.03)
    return loss.item()


def learner(rank, folder, init):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {rank} %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=WORLD)
    torch.manual_seed(rank)
    model = DDP(Tracer())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    memories = [torch.randn(12, WIDTH) for _ in range(LEARNERS[rank])]
    archive = Archive(Path(folder) / f"memories{rank}.bin")
    archive.write(memories)
    logging.info("stage one: %.3f", stage(model, optimizer, memories, 70))
    started = time.time()
    memories = list(archive.read())
    logging.info("%d memories in %.1f s", len(memories), time.time() - started)
    dist.barrier()
    logging.info("stage two: %.3f", stage(model, optimizer, memories, 70))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="tracing-")
    init = f"file://{os.path.join(folder, 'meeting')}"
    mp.spawn(learner, args=(folder, init), nprocs=WORLD)
