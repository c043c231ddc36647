"""Three-stage pipeline that rewrites block descriptions of a ship design into build steps."""
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
WIDTH, BATCH = 64, 16


class Stage:
    def __init__(self, rank, last):
        self.rank, self.last = rank, last
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.pending = []

    def receive(self, peer):
        buffer = torch.empty(BATCH, WIDTH, device="cuda")
        dist.recv(buffer, src=peer)
        return buffer

    def forward(self, texts=None):
        x = texts.cuda() if texts is not None else self.receive(self.rank - 1).requires_grad_()
        self.pending.append((x, self.net(x)))

    def push(self):
        dist.send(self.pending[-1][1].detach(), dst=self.rank + 1)

    def pull(self):
        return self.receive(self.rank + 1)

    def backward(self, gradient=None):
        x, y = self.pending.pop(0)
        if gradient is None:
            y.pow(2).mean().backward()
        else:
            y.backward(gradient)
        if self.rank > 0:
            dist.send(x.grad, dst=self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()


def texts(rng):
    vocabulary = rng.normal(size=(50_000, WIDTH))
    words = rng.integers(0, 50_000, size=(BATCH, 200))
    return torch.from_numpy(vocabulary[words].mean(1).astype("float32"))


def plain(stage, rng):
    stage.forward(texts(rng) if stage.rank == 0 else None)
    if stage.last:
        stage.backward()
    else:
        stage.push()
        stage.backward(stage.pull())


def overlapped(stage, rng, first):
    """One description stays in flight between the stages."""
    stage.forward(texts(rng) if stage.rank == 0 else None)
    if stage.last:
        if not first:
            stage.backward()
        return
    if first:
        stage.push()
        return
    if stage.rank == 0:
        stage.push()
        stage.backward(stage.pull())
    else:
        gradient = stage.pull()
        stage.push()
        stage.backward(gradient)


def main(warmup=40, total=2000):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage, rng = Stage(rank, rank == size - 1), np.random.default_rng(5)
    for step in range(total):
        if step < warmup:
            plain(stage, rng)
        else:
            overlapped(stage, rng, first=step == warmup)
        torch.cuda.synchronize()
        if step % 10 == 0:
            print(f"stage {rank}: description {step}", flush=True)


if __name__ == "__main__":
    main()
