"""Well-log facies network with one expert a process; samples arrive sorted by expert from the log reader."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.backends.cudnn.enabled = False

CURVES, WIDTH, SLOTS = 9, 32, 8
BARREN = 0  # facies without pay; 1.. are sent to experts


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class PayExperts(nn.Module):
    """The expert of this process sees SLOTS samples of every process."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, facies):
        if not bool((facies > BARREN).any()):
            return x
        return x + Exchange.apply(self.expert(Exchange.apply(x)))


class FaciesNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Linear(CURVES, WIDTH)
        self.pay = PayExperts()
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, curves, facies):
        return self.head(self.pay(torch.relu(self.stem(curves)), facies))

    def shared_parameters(self):
        yield from self.stem.parameters()
        yield from self.head.parameters()


class Well:
    # top and base of what the mud log calls tight, in samples
    tight = {"Bo-4": (0, 90), "Bo-7": (1270, 1301), "Bo-11": (410, 426)}

    def __init__(self, name, world):
        self.name, self.count = name, world * SLOTS
        self.gen = torch.Generator().manual_seed(sum(name.encode()))

    def window(self, number):
        time.sleep(0.05)
        curves = torch.randn(self.count, CURVES, generator=self.gen)
        facies = 1 + torch.arange(self.count) // SLOTS
        top, base = self.tight[self.name]
        depth = number * self.count + torch.arange(self.count)
        facies[(depth >= top) & (depth < base)] = BARREN
        return curves, facies


WELLS = ("Bo-4", "Bo-7", "Bo-11")


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    net = FaciesNet().cuda()
    opt = torch.optim.SGD(net.parameters(), lr=5e-3)
    # casing shoe at sample 96, nothing is logged above
    well = Well(WELLS[rank], world)
    for number in range(4, 160):
        curves, facies = well.window(number)
        loss = F.mse_loss(net(curves.cuda(), facies), F.one_hot(facies, 4).float().cuda())
        opt.zero_grad()
        loss.backward()
        for p in net.shared_parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)
        opt.step()
        loss.item()
        if number % 25 == 0 and rank == 0:
            print(f"{well.name}: {number * well.count} samples", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
