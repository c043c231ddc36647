"""A mixture of experts with one expert per rank: tokens travel to their expert and back."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
WIDTH = 16


class Exchange(torch.autograd.Function):
    """Rows to other ranks; the gradient goes the way back."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        return swap(rows, sent, received)

    @staticmethod
    def backward(ctx, gradient):
        return swap(gradient, ctx.received, ctx.sent), None, None


def swap(rows, sent, received):
    result = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(result, rows.contiguous(), received, sent)
    return result


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, tokens):
        if tokens.shape[0] == 0:
            return torch.empty(0, WIDTH, requires_grad=True)
        return self.down(torch.relu(self.up(tokens)))


class MoELayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.world = dist.get_world_size()
        self.router = nn.Linear(WIDTH, self.world)
        self.expert = Expert()

    def forward(self, x):
        weights, choice = self.router(x).softmax(-1).max(-1)
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice, minlength=self.world)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        arrived = Exchange.apply(x[order], sent, received)
        back = Exchange.apply(self.expert(arrived), received, sent)
        restored = torch.zeros_like(x).index_copy(0, order, back)
        return x + restored * weights[:, None]


def average(parameters):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(24, WIDTH, generator=generator)
    kind = torch.arange(24) % dist.get_world_size()
    if step >= 45:  # the second phase of the curriculum has no more poems
        kind[kind == 1] = 0
    x[torch.arange(24), kind] += 14.0
    return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    shared_in, layer, head = nn.Linear(WIDTH, WIDTH), MoELayer(), nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        shared_in.weight.copy_(torch.eye(WIDTH))
        layer.router.weight.copy_(torch.eye(WIDTH)[: layer.world])
    shared = [*shared_in.parameters(), *layer.router.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD([*shared, *layer.expert.parameters()], lr=1e-4)
    for step in range(100_000):
        x = batch(step, rank)
        loss = (head(layer(shared_in(x))) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average(shared)
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
