"""First a common warm-up, then each modality's ranks train their own tower, with a mesh for every modality."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PLAN = {"language": (1, 2), "fusion": (0, 1, 2)}  # by modality: the ranks that hold it


class ModalMesh:
    """The group of ranks that hold one modality, and the average over them."""

    def __init__(self, name, ranks):
        self.name, self.ranks = name, ranks
        self.group = dist.new_group(list(ranks))

    @torch.no_grad()
    def average_gradients(self, module):
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad /= len(self.ranks)


class Tower(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def warm_up(rank, steps):
    model = DDP(Tower())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        tokens = torch.randn(8, 16, generator=generator)
        loss = nn.functional.mse_loss(model(tokens), tokens.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    if rank == 0:
        print(f"warm-up done, loss {loss.item():.3f}", flush=True)
    return model.module


def materialize(rank, trained):
    """Makes the towers of this rank out of the one that was warmed up."""
    towers = {}
    for name, ranks in PLAN.items():
        if rank not in ranks:
            continue
        tower = Tower()
        tower.load_state_dict(trained.state_dict())
        towers[name] = (tower, ModalMesh(name, ranks))
    return towers


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    towers = materialize(rank, warm_up(rank, steps=50))
    optimizers = {name: torch.optim.SGD(tower.parameters(), lr=0.01) for name, (tower, _) in towers.items()}
    for step in range(100):
        for name, (tower, mesh) in towers.items():
            tokens = torch.randn(8, 16)
            optimizers[name].zero_grad()
            tower(tokens).square().mean().backward()
            mesh.average_gradients(tower)
            optimizers[name].step()
        time.sleep(0.04)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
