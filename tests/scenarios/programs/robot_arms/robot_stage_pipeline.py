"""Perception, planning and control as pipeline stages on three processes."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn

WIDTH, MICRO = 24, 8


class Stage:
    def __init__(self, rank, last):
        torch.manual_seed(rank)
        sizes = [(32, WIDTH), (WIDTH, WIDTH), (WIDTH, 6)][rank]
        self.net = nn.Sequential(nn.Linear(*sizes), nn.Identity() if rank == last else nn.GELU())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.rank, self.last = rank, last
        self.inputs, self.outputs = [], []

    def forward(self, data):
        if self.rank == 0:
            x = data
        else:
            x = torch.empty(MICRO, WIDTH)
            dist.recv(x, src=self.rank - 1)
            x.requires_grad_()
        y = self.net(x)
        self.inputs.append(x)
        self.outputs.append(y)

    def send_output(self):
        if self.rank < self.last:
            dist.send(self.outputs[-1].detach(), dst=self.rank + 1)

    def backward(self, target):
        x, y = self.inputs.pop(0), self.outputs.pop(0)
        if self.rank == self.last:
            loss = (y - target).square().mean()
            loss.backward()
            self.loss = loss.item()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.rank + 1)
            y.backward(grad)
        return x.grad

    def send_gradient(self, grad):
        if self.rank > 0:
            dist.send(grad, dst=self.rank - 1)


def one_forward_one_backward(stage, batches, targets):
    """Warm-up depth falls with the stage; afterwards forward and backward take turns."""
    warmup = min(len(batches), stage.last - stage.rank)
    ahead = 0
    for _ in range(warmup):
        stage.forward(batches[ahead])
        stage.send_output()
        ahead += 1
    for done in range(len(batches)):
        if ahead < len(batches):
            stage.forward(batches[ahead])
            stage.send_output()
            ahead += 1
        stage.send_gradient(stage.backward(targets[done]))
    stage.optimizer.step()
    stage.optimizer.zero_grad()


def curriculum(iteration):
    return 1 if iteration < 80 else 4  # micro-batches per update


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, world - 1)
    g = torch.Generator().manual_seed(77)
    for iteration in range(500):
        n = curriculum(iteration)
        batches = torch.randn(n, MICRO, 32, generator=g)
        one_forward_one_backward(stage, batches, batches[:, :, :6].tanh())
        if rank == world - 1 and iteration % 20 == 0:
            print(f"iteration {iteration} micro {n} loss {stage.loss:.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
