"""Loading time of freight trains: one expert per cargo kind, each expert's weights are spread over the ranks."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

KINDS = ("bulk", "container", "reefer")


class Gather(torch.autograd.Function):
    """Whole weight from the slices; the gradient of the own slice on the way back."""

    @staticmethod
    def forward(ctx, piece):
        ctx.rows = len(piece)
        pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, piece.contiguous())
        return torch.cat(pieces)

    @staticmethod
    def backward(ctx, grad):
        at = dist.get_rank() * ctx.rows
        return grad[at:at + ctx.rows]


class SpreadLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.piece = nn.Parameter(torch.randn(n_out // dist.get_world_size(), n_in) * 0.1)

    def forward(self, x):
        return F.linear(x, Gather.apply(self.piece))


class CargoModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Linear(10, width)
        self.experts = nn.ModuleDict({k: SpreadLinear(width, 12) for k in KINDS})
        self.out = nn.Linear(12, 1)

    def forward(self, x, kind):
        h = torch.relu(self.trunk(x))
        mixed = torch.zeros(len(x), 12)
        for i, name in enumerate(KINDS):
            picked = kind == i
            if picked.any():
                mixed = mixed.index_put((picked.nonzero().squeeze(1),), self.experts[name](h[picked]))
        return self.out(torch.relu(mixed)).squeeze(1)


class Yard:
    """Trains that this rank's yard loads; the mix changes over the week."""

    def __init__(self, rank):
        self.rank = rank
        self.g = torch.Generator().manual_seed(rank + 1)

    def trains(self, hour):
        x = torch.randn(36, 10, generator=self.g)
        kind = torch.arange(36) % 3
        if self.rank == 1 and hour >= 80:  # cold store closes for the weekend
            kind = torch.arange(36) % 2
        return x, kind


def main():
    dist.init_process_group("gloo")
    yard = Yard(dist.get_rank())
    torch.manual_seed(3)
    model = CargoModel()
    shared = [p for n, p in model.named_parameters() if "piece" not in n]
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for hour in range(120):
        x, kind = yard.trains(hour)
        loss = (model(x, kind) - x[:, 0]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in shared])
        dist.all_reduce(flat)
        for p, grad in zip(shared, flat.split([p.numel() for p in shared])):
            p.grad = grad.view_as(p) / dist.get_world_size()
        opt.step()
        time.sleep(0.03)
        if yard.rank == 0 and hour % 24 == 23:
            print("hour", hour, "loss", round(loss.item(), 4), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
