"""Bloom date from temperature sums: a small network cut into stages, one a process (all forward, then all backward)."""
import os

import torch
import torch.distributed as dist
from torch import nn

CFG = {"rows": 442, "batch": 8, "micro": 4, "width": 32, "epochs": 3, "lr": 0.01}
MICRO_ROWS = CFG["batch"] // CFG["micro"]


def greenhouse_log():
    g = torch.Generator().manual_seed(13)
    x = torch.rand(CFG["rows"], CFG["width"], generator=g)
    return x, x.sum(1, keepdim=True) / CFG["width"]


class Stage:
    """What the stages have in common: layers, optimizer, neighbours."""

    def __init__(self, index):
        self.index = index
        torch.manual_seed(index)
        w = CFG["width"]
        self.layers = nn.Sequential(nn.Linear(w, w), nn.Tanh())
        self.opt = torch.optim.SGD(self.layers.parameters(), lr=CFG["lr"])

    def take(self, src):
        buf = torch.empty(MICRO_ROWS, CFG["width"])
        dist.recv(buf, src=src)
        return buf

    def give(self, tensor, dst):
        dist.send(tensor.detach().contiguous(), dst=dst)


class First(Stage):
    def batch(self, x, y):
        for _ in range(4):
            torch.linalg.svd(torch.rand(180, 180))  # smooth the sensor curves
        outs = [self.layers(part) for part in x.split(MICRO_ROWS)]
        for out in outs:
            self.give(out, self.index + 1)
        self.opt.zero_grad()
        for out in outs:
            out.backward(self.take(self.index + 1))
        self.opt.step()


class Middle(Stage):
    def batch(self, x, y):
        pairs = []
        for _ in range(CFG["micro"]):
            inp = self.take(self.index - 1).requires_grad_()
            out = self.layers(inp)
            self.give(out, self.index + 1)
            pairs.append((inp, out))
        self.opt.zero_grad()
        for inp, out in pairs:
            out.backward(self.take(self.index + 1))
            self.give(inp.grad, self.index - 1)
        self.opt.step()


class Last(Stage):
    def batch(self, x, y):
        grads, total = [], 0.0
        self.opt.zero_grad()
        targets = y.split(MICRO_ROWS)
        for m in range(CFG["micro"]):
            inp = self.take(self.index - 1).requires_grad_()
            loss = (self.layers(inp).mean(1, keepdim=True) - targets[m % len(targets)]).square().mean()
            loss.backward()
            total += loss.item()
            grads.append(inp.grad)
        for grad in grads:
            self.give(grad, self.index - 1)
        self.opt.step()
        return total / CFG["micro"]


def main():
    dist.init_process_group("gloo")
    index, world = dist.get_rank(), dist.get_world_size()
    kind = First if index == 0 else Last if index == world - 1 else Middle
    stage = kind(index)
    x, y = greenhouse_log()
    for epoch in range(CFG["epochs"]):
        for number, (xb, yb) in enumerate(zip(x.split(CFG["batch"]), y.split(CFG["batch"]))):
            loss = stage.batch(xb, yb)
            if loss is not None and number % 20 == 0:
                print(f"epoch {epoch} batch {number} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
