"""Power model of a satellite with one expert per operating mode; the experts' weights are spread over the ranks."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

MODES = ("cruise", "imaging", "eclipse")
WIDTH = 48


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard.detach().contiguous())
        ctx.rows = shard.shape[0]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        start = dist.get_rank() * ctx.rows
        return grad[start:start + ctx.rows] / dist.get_world_size()


class SpreadLinear(nn.Module):
    """Linear layer of which a rank keeps `outputs / world` rows."""

    def __init__(self, inputs, outputs):
        super().__init__()
        rows = outputs // dist.get_world_size()
        self.rows = nn.Parameter(torch.randn(rows, inputs) / inputs ** 0.5)

    def forward(self, x):
        return F.linear(x, GatherRows.apply(self.rows))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = SpreadLinear(8, WIDTH), SpreadLinear(WIDTH, 12)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class PowerModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in MODES)
        self.share = torch.zeros(len(MODES))

    def forward(self, x, mode):
        out = torch.zeros(len(x), 12)
        for number, expert in enumerate(self.experts):
            rows = (mode == number).nonzero().flatten()
            if len(rows):
                out = out.index_copy(0, rows, expert(x[rows]))
        load = torch.bincount(mode, minlength=len(MODES)).float()
        dist.all_reduce(load)
        self.share = 0.9 * self.share + 0.1 * load / load.sum()
        return out.mean(dim=1)


def orbit(rank, number, gen, n=36):
    """Telemetry of one orbit. From revolution 70 on, satellite 2 is in its season of full sun."""
    x = torch.randn(n, 8, generator=gen)
    mode = torch.arange(n) % 3
    if rank == 2 and number >= 70:
        mode = torch.arange(n) % 2
    return x, mode, x[:, 0] * (mode + 1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = PowerModel()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(60 + rank)
    for number in range(200):
        x, mode, power = orbit(rank, number, gen)
        loss = F.mse_loss(model(x, mode), power)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.01)
        if rank == 0 and number % 20 == 0:
            shares = ", ".join(f"{m} {s:.2f}" for m, s in zip(MODES, model.share.tolist()))
            print(f"orbit {number} loss {loss.item():.3f} ({shares})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
