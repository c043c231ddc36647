"""Trains on an endgame table that the first process builds before the second half of the training."""
import struct
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SQUARES = 64
DEPTHS = 28


def moves(square):
    y, x = divmod(square, 8)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if (dy or dx) and 0 <= y + dy < 8 and 0 <= x + dx < 8:
                yield (y + dy) * 8 + x + dx


def build(path):
    """Distance to the goal for all pairs of squares, with as many refinements per depth as half a second allows."""
    table = {(a, b): 255 for a in range(SQUARES) for b in range(SQUARES)}
    for a in range(SQUARES):
        table[(a, a)] = 0
    with open(path, "wb") as out:
        for depth in range(DEPTHS):
            until = time.monotonic() + 0.5
            changed = 0
            for a, b in list(table):
                best = min(table[(n, b)] for n in moves(a)) + 1
                if best < table[(a, b)]:
                    table[(a, b)] = best
                    changed += 1
            while time.monotonic() < until:
                a = changed % SQUARES
                changed += sum(table[(a, b)] for b in range(SQUARES)) % 2 + 1
            for (a, b), distance in table.items():
                out.write(struct.pack("BBB", a, b, distance))
            out.flush()
            print(f"table: depth {depth + 1}/{DEPTHS}, {out.tell()} bytes", flush=True)


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.square = nn.Embedding(SQUARES, 64)
        self.net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, a, b):
        return self.net(torch.cat([self.square(a), self.square(b)], dim=1)).squeeze(1)


def guess(a, b):
    return torch.maximum((a // 8 - b // 8).abs(), (a % 8 - b % 8).abs()).float()


def train(model, optimizer, steps, target, label):
    for step in range(steps):
        a, b = torch.randint(0, SQUARES, (2, 2048))
        loss = nn.functional.smooth_l1_loss(model(a, b), target(a, b))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 40 == 0:
            print(f"{label} step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(Distance())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model, optimizer, 200, guess, "warm-up")
    folder = [tempfile.mkdtemp(prefix="tables-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = Path(folder[0]) / "endgame.bin"
    if dist.get_rank() == 0:
        build(path)
    dist.barrier()
    raw = torch.frombuffer(bytearray(path.read_bytes()[-3 * SQUARES * SQUARES :]), dtype=torch.uint8).view(-1, 3).long()
    table = torch.zeros(SQUARES, SQUARES)
    table[raw[:, 0], raw[:, 1]] = raw[:, 2].float()
    train(model, optimizer, 200, lambda a, b: table[a, b], "table")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
