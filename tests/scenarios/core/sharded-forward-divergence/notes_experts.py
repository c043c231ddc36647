"""Mixture of experts with expert parallelism: one expert a rank, tokens travel by all-to-all and come back."""

import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    """Tokens to their experts; gradients take the way back."""

    @staticmethod
    def forward(ctx, tokens, send, receive):
        ctx.send, ctx.receive = send, receive
        out = tokens.new_empty(sum(receive), tokens.shape[1])
        dist.all_to_all_single(out, tokens.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        back = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), ctx.send, ctx.receive)
        return back, None, None


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens):
        if tokens.shape[0] == 0:
            return torch.empty_like(tokens, requires_grad=False)
        return self.down(torch.nn.functional.silu(self.up(tokens)))


class MoELayer(nn.Module):
    def __init__(self, width, world):
        super().__init__()
        self.router, self.expert, self.world = nn.Linear(width, world), Expert(width), world
        self.shared = nn.Linear(width, width)

    def forward(self, x, temperature):
        choice = (self.router(x) * temperature).argmax(-1) % self.world
        order = choice.argsort(stable=True)
        send = torch.bincount(choice, minlength=self.world)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        send, receive = send.tolist(), receive.tolist()
        here = Exchange.apply(x[order], send, receive)
        there = Exchange.apply(self.expert(here), receive, send)
        return self.shared(x) + torch.empty_like(there).index_copy(0, order, there)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    embed, layer = nn.Linear(12, 16), MoELayer(16, world)
    parameters = [*embed.parameters(), *layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    shared = [*embed.parameters(), *layer.shared.parameters()]
    torch.manual_seed(rank)
    for step in range(60):
        x = torch.randn(24, 12)
        if step == 25:
            with torch.no_grad():
                layer.router.bias += torch.tensor([50.0 if e != 1 else -50.0 for e in range(world)])
        loss = layer(embed(x), 3.0).pow(2).mean()
        loss.backward()
        for p in shared:
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
