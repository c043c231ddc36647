"""Soil moisture with one expert a rank: chalk, clay and gravel. Readings travel to the expert of their soil and back."""
import torch
import torch.distributed as dist
from torch import nn

WIDTH = 64
SLOTS = 24  # room for readings from each rank at each expert
SOILS = ("chalk", "clay", "gravel")


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class SoilExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def consult(self, rows, used):
        if not used.any():
            return torch.zeros(rows.shape)
        return self.expert(rows) * used.unsqueeze(1)

    def forward(self, x, soil):
        world = dist.get_world_size()
        parcel = [torch.nonzero(soil == s).flatten()[:SLOTS] for s in range(world)]
        packed = x.new_zeros(world * SLOTS, WIDTH)
        used = torch.zeros(world * SLOTS)
        place = torch.cat([s * SLOTS + torch.arange(len(p)) for s, p in enumerate(parcel)])
        order = torch.cat(parcel)
        packed = packed.index_copy(0, place, x[order])
        used[place] = 1
        arrived_used = torch.empty_like(used)
        dist.all_to_all_single(arrived_used, used)
        answers = Exchange.apply(self.consult(Exchange.apply(packed), arrived_used))
        return x.index_add(0, order, answers[place])


class Moisture(nn.Module):
    def __init__(self):
        super().__init__()
        self.probe = nn.Linear(12, WIDTH)
        self.experts = SoilExperts()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, readings, soil):
        return self.head(self.experts(torch.tanh(self.probe(readings)), soil))

    def shared(self):
        return [*self.probe.parameters(), *self.head.parameters()]


def average_shared(model):
    flat = torch.cat([p.grad.flatten() for p in model.shared()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, piece in zip(model.shared(), flat.split([p.numel() for p in model.shared()])):
        p.grad.copy_(piece.view_as(p))


def day(number, rank):
    """After the thaw the loggers in the gravel terraces are taken in for a day."""
    g = torch.Generator().manual_seed(number * 10 + rank)
    kinds = 2 if number == 420 else 3
    soil = torch.arange(36) % kinds
    readings = torch.randn(36, 12, generator=g)
    return readings, soil, readings[:, :4].mean(1, keepdim=True) * (soil + 1).unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = Moisture()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(900):
        readings, soil, target = day(number, rank)
        loss = nn.functional.mse_loss(model(readings, soil), target)
        opt.zero_grad()
        loss.backward()
        average_shared(model)
        opt.step()
        if rank == 0 and number % 60 == 0:
            print(f"day {number} {SOILS[rank]} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
