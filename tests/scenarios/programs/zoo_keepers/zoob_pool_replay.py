"""Penguin counts from the pool camera. After training, the model is tried on a replay of a recording at the camera's own pace,
since the tracker behind it depends on the times between frames."""
import os
import time
from collections import deque

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

RANKS, FPS, SECONDS = 3, 12, 13


class Replay:
    def __init__(self, seconds, fps):
        self.count, self.gap = seconds * fps, 1 / fps
        self.generator = torch.Generator().manual_seed(99)

    def __iter__(self):
        due = time.monotonic()
        for number in range(self.count):
            due += self.gap
            time.sleep(max(0.0, due - time.monotonic()))
            yield time.monotonic(), torch.rand(1, 3, 40, 40, generator=self.generator)


class Tracker:
    def __init__(self, memory=24):
        self.seen = deque(maxlen=memory)

    def update(self, at, count):
        self.seen.append((at, count))
        (t0, c0), (t1, c1) = self.seen[0], self.seen[-1]
        return (c1 - c0) / (t1 - t0) if t1 > t0 else 0.0


def pool_net():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 2), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(16 * 8 * 8, 1))


def train(model, opt, rank, steps, seed):
    for step in range(steps):
        g = torch.Generator().manual_seed(seed + step * RANKS + rank)
        frames = torch.rand(160, 3, 40, 40, generator=g)
        loss = (model(frames).squeeze(1) - 10 * frames.mean((1, 2, 3))).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def replay_flow(net):
    tracker = Tracker()
    flows = [tracker.update(at, net(frame).item()) for at, frame in Replay(SECONDS, FPS)]
    return sum(flows) / len(flows)


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(21)
    model = DDP(pool_net())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    train(model, opt, rank, 120, 0)
    mine = {"rank": rank, "flow": replay_flow(model.module) if rank == 2 else None}
    everybody = [None] * RANKS
    dist.all_gather_object(everybody, mine)
    loss = train(model, opt, rank, 90, 400_000)
    if rank == 2:
        print(f"flow {everybody[2]['flow']:+.3f} per second, loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(port,), nprocs=RANKS)
