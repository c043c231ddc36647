"""
Repeat generator for printed cloth, split over two cards: the first draws the
coarse repeat, the second the fine one. Rows of a repeat are the micro-batches.
"""
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

ROWS_PER_CHUNK = 8
HIDDEN = 40
# heights of the repeats of this season's collection, in rows
COLLECTION = [32, 40, 24, 48] * 9 + [44, 36, 32] * 20


class Stage:
    def __init__(self, rank, device):
        self.rank, self.other, self.device = rank, 1 - rank, device
        sizes = (16, HIDDEN) if rank == 0 else (HIDDEN, 3)
        self.net = nn.Sequential(nn.Linear(*sizes), nn.Tanh()).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def finish(self, step):
        self.optimizer.step()
        self.optimizer.zero_grad()
        if step % 8 == 0:
            weight = next(self.net.parameters())
            print(f"stage {self.rank}: repeat {step}, |w| {weight.norm().item():.3f}", flush=True)


class CoarseStage(Stage):
    def sketch(self, rows):
        time.sleep(0.06)
        grid = torch.arange(rows * 16.0).reshape(rows, 16)
        return (grid * 0.37).sin()

    def step(self, step, rows):
        sketch = self.sketch(rows).to(self.device)
        drawn = []
        for k in range(math.ceil(rows / ROWS_PER_CHUNK)):
            chunk = sketch[k * ROWS_PER_CHUNK : (k + 1) * ROWS_PER_CHUNK]
            pad = ROWS_PER_CHUNK - len(chunk)
            drawn.append(self.net(nn.functional.pad(chunk, (0, 0, 0, pad))))
            dist.send(drawn[-1].detach().contiguous(), dst=self.other)
        for out in drawn:
            grad = torch.empty_like(out)
            dist.recv(grad, src=self.other)
            out.backward(grad)
        self.finish(step)


class FineStage(Stage):
    def step(self, step, rows):
        inputs = []
        for _ in range(rows // ROWS_PER_CHUNK):
            coarse = torch.empty(ROWS_PER_CHUNK, HIDDEN, device=self.device)
            dist.recv(coarse, src=self.other)
            inputs.append(coarse.requires_grad_())
        for coarse in inputs:
            self.net(coarse).square().mean().backward()
            dist.send(coarse.grad, dst=self.other)
        self.finish(step)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    stage = (CoarseStage, FineStage)[rank](rank, torch.device("cuda", local))
    for step, rows in enumerate(COLLECTION):
        stage.step(step, rows)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
