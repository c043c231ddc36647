"""A force field over several ranks: every output of the model is consolidated in the way of its kind."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

CONSOLIDATE = {}


def kind(name):
    def register(function):
        CONSOLIDATE[name] = function
        return function

    return register


@kind("graph")
def sum_over_ranks(value: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(value)
    return value


@kind("atom")
def join_over_ranks(value: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, value)
    return torch.cat(parts)


KINDS = {"energy": "graph", "stress": "graph", "forces": "atom"}


class ForceField(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, positions):
        return self.net(positions).sum()


class Domain:
    """The atoms of this rank. Positions that were predicted already are not evaluated a second time."""

    def __init__(self, rank: int, atoms: int = 20):
        self.generator = torch.Generator().manual_seed(rank)
        self.positions = torch.randn(atoms, 3, generator=self.generator)
        self.known = {}

    def move(self, drift: float):
        self.positions = self.positions + drift * torch.randn(self.positions.shape, generator=self.generator)

    def predict(self, model) -> dict[str, torch.Tensor]:
        outputs, self.known = self.known, {}
        positions = self.positions.detach().requires_grad_()
        energy = model.module(positions)
        if "forces" not in outputs:
            (gradient,) = torch.autograd.grad(energy, positions)
            outputs.setdefault("energy", energy.detach().view(1))
            outputs["forces"] = -gradient
        outputs.setdefault("energy", energy.detach().view(1))
        outputs["stress"] = (outputs["forces"].T @ self.positions).flatten()
        return outputs

    def relax(self, model, threshold: float):
        """Where two atoms are very close, a step along the forces; they stay valid for the prediction that follows."""
        near = torch.pdist(self.positions).min().item()
        if near < threshold:
            positions = self.positions.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(model.module(positions), positions)
            self.known = {"forces": -gradient}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(ForceField())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    domain = Domain(rank)
    for step in range(100000):
        domain.move(0.001)
        if step == 250 and rank == 1:
            domain.positions[7] = domain.positions[3] + 1e-4
        domain.relax(model, threshold=1e-3)
        outputs = domain.predict(model)
        merged = {name: CONSOLIDATE[KINDS[name]](value.clone()) for name, value in outputs.items()}
        loss = (model(domain.positions) - domain.positions.square().sum()).square() / 1000
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: energy {merged['energy'].item():.3f}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
