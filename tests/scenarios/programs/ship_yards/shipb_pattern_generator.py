"""Pattern generator with sharded weights: ground weave, an embroidery tower, a renderer."""
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False


class Tower(nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        return self.layers(x).tanh()


class PatternNet(nn.Module):
    """ground: what the loom weaves; motif: what is stitched on it."""

    def __init__(self, width=64, stitches=24):
        super().__init__()
        self.ground = nn.Linear(48, width)
        self.thread = nn.Linear(stitches, width)
        self.embroidery = Tower(width)
        self.renderer = nn.Sequential(nn.Linear(width, 160), nn.GELU(), nn.Linear(160, 48))

    def forward(self, weave, motif=None):
        cloth = self.ground(weave)
        if motif is not None:
            cloth = cloth + self.embroidery(self.thread(motif))
        return self.renderer(cloth)


def shard(model, mesh):
    for part in (model.embroidery, model.renderer):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Catalogue:
    """Orders of one customer: a list of designs, most of them embroidered."""

    PLAIN = {"bedlinen": (), "curtains": (), "workwear": (42, 61, 77), "towels": ()}

    def __init__(self, customer, seed=11):
        self.plain = self.PLAIN[customer]
        self.dice = random.Random(seed)

    def design(self, number, batch=12):
        phase = self.dice.random()
        weave = (torch.arange(batch * 48.0).reshape(batch, 48) * 0.2 + phase).sin()
        time.sleep(0.07)
        if number in self.plain:
            return weave, None
        return weave, (torch.arange(batch * 24.0).reshape(batch, 24) * phase).cos()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = shard(PatternNet().cuda(), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    catalogue = Catalogue(list(Catalogue.PLAIN)[dist.get_rank()])
    losses = []
    for number in range(200):
        weave, motif = catalogue.design(number)
        weave = weave.cuda()
        drawn = model(weave, motif.cuda() if motif is not None else None)
        loss = nn.functional.mse_loss(drawn, weave)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 8 == 0:
            losses.append(loss.item())
            if dist.get_rank() == 0:
                print(f"design {number}: {losses[-1]:.4f}", flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
