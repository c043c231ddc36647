"""Online system identification: the joint logger streams encoder blocks through named pipes."""
import os
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

BLOCK = 32
RECORD = struct.Struct("<6f")
LOGGER = """
import os, random, struct, sys, time
path, blocks, block, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
out = open(path, "wb", buffering=0)
for _ in range(blocks * block):
    q = [rng.gauss(0, 1) for _ in range(3)]
    out.write(struct.pack("<6f", *q, *(0.7 * v + 0.1 * rng.gauss(0, 1) for v in q)))
while os.getppid() == int(sys.argv[5]):
    time.sleep(1)
"""


class EncoderStream:
    def __init__(self, directory, joint, blocks):
        self.path = os.path.join(directory, f"joint{joint}.fifo")
        os.mkfifo(self.path)
        arguments = [self.path, blocks, BLOCK, joint, os.getpid()]
        self.logger = subprocess.Popen([sys.executable, "-c", LOGGER, *map(str, arguments)])
        self.pipe = open(self.path, "rb")

    def next_block(self):
        raw = self.pipe.read(BLOCK * RECORD.size)
        rows = torch.tensor(list(RECORD.iter_unpack(raw)))
        return rows[:, :3], rows[:, 3:]


class Identifier:
    """Recursive least squares on pooled normal equations."""

    def __init__(self):
        self.xx = torch.eye(3) * 1e-3
        self.xy = torch.zeros(3, 3)

    def update(self, q, tau):
        pooled = torch.stack([q.T @ q, q.T @ tau])
        dist.all_reduce(pooled)
        self.xx += pooled[0]
        self.xy += pooled[1]
        return torch.linalg.solve(self.xx, self.xy)


def main(seconds=12.0, rate=20):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    steps = int(seconds * rate)
    recorded = {0: 70, 1: steps, 2: steps}
    with tempfile.TemporaryDirectory() as tmp:
        stream = EncoderStream(tmp, rank, recorded[rank])
        model = Identifier()
        for step in range(steps):
            q, tau = stream.next_block()
            theta = model.update(q, tau)
            if step % 20 == 0 and rank == 0:
                print(f"t={step / rate:4.1f}s diagonal {theta.diagonal().tolist()}", flush=True)
            time.sleep(1 / rate)
        stream.logger.kill()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
