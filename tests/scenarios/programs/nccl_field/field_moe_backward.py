"""Mixture of experts: tokens are exchanged in a group of their own, gradients of shared weights in the default group."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn


class Shuffle(torch.autograd.Function):
    """all_to_all of rows; the gradient travels the other way."""

    @staticmethod
    def forward(ctx, rows, send, receive, group):
        ctx.way = (receive, send, group)
        return move(rows, send, receive, group)

    @staticmethod
    def backward(ctx, gradient):
        return move(gradient.contiguous(), *ctx.way), None, None, None


def move(rows, send, receive, group):
    out = rows.new_zeros(sum(receive), rows.shape[1])
    dist.all_to_all_single(out, rows, receive, send, group=group)
    return out


class Experts(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.feed_forward = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def run(self, rows):
        if len(rows) == 0:
            return torch.empty(0, rows.shape[1], device=rows.device)
        return self.feed_forward(rows)

    def forward(self, x, send, receive):
        arrived = Shuffle.apply(x, send, receive, self.group)
        return self.run(arrived)


class Router:
    """How many tokens each rank sends to each expert. The same table on all ranks, drawn anew every step."""

    def __init__(self, world, capacity):
        self.world, self.capacity = world, capacity
        self.generator = torch.Generator().manual_seed(28)

    def table(self):
        table = torch.randint(0, self.capacity, (self.world, self.world), generator=self.generator)
        table[:, 0] += 1
        table[:, -1] += 1
        return table


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    experts_group = dist.new_group(list(range(world)))
    shared = nn.Linear(24, 24).to(device)
    experts = Experts(24, experts_group).to(device)
    router = Router(world, capacity=4)
    for step in range(400):
        table = router.table()
        send, receive = table[rank].tolist(), table[:, rank].tolist()
        x = torch.rand(sum(send), 24).to(device)
        time.sleep(0.2)
        y = experts(shared(x), send, receive)
        loss = y.sum() + shared.weight.sum() * 0.01
        loss.backward()
        for parameter in shared.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        with torch.no_grad():
            for parameter in (*shared.parameters(), *experts.parameters()):
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-1e-3)
                    parameter.grad = None
        if rank == 0 and step % 10 == 0:
            print(f"step {step}, {sum(send)} tokens", flush=True)
        torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
