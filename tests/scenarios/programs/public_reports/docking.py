"""Poses of ligands; now and then a covariance cannot be factorized, and such a batch is passed over."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VALIDATE_EVERY = 25


class PoseModel(nn.Module):
    """Mean and spread of three coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 3))

    def forward(self, graphs: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
        """Negative log likelihood; atoms: (rows, points, 3)."""
        centred = atoms - atoms.mean(1, keepdim=True)
        covariance = centred.mT @ centred / atoms.shape[1]
        factor = torch.linalg.cholesky(covariance)
        error = torch.linalg.solve_triangular(factor, (atoms.mean(1) - self.body(graphs))[..., None], upper=False)
        return error.square().mean() + factor.diagonal(dim1=-2, dim2=-1).log().mean()


def batches(rank: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random complexes; one of rank 2 has all its atoms in one place."""
    generator = torch.Generator().manual_seed(rank)
    rows = []
    for number in range(count):
        atoms = torch.randn(4, 12, 3, generator=generator)
        if rank == 2 and number == 37:
            atoms[1] = 1.0
        rows.append((torch.randn(4, 10, generator=generator), atoms))
    return rows


def main() -> None:
    """Two hundred batches."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = PoseModel()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    passed_over = 0
    for number, (graphs, atoms) in enumerate(batches(rank, 200)):
        try:
            model(graphs, atoms).backward()
        except RuntimeError as error:
            passed_over += 1
            print(f"rank {rank}: batch {number} passed over: {str(error)[:60]}", flush=True)
            optimizer.zero_grad()
            continue
        optimizer.step()
        optimizer.zero_grad()
        if (number + 1) % VALIDATE_EVERY == 0:
            with torch.no_grad():
                score = [net(torch.zeros(2, 10), torch.eye(3).repeat(2, 4, 1) + 0.1 * torch.randn(2, 12, 3)).item()]
            scores = [None] * dist.get_world_size()
            dist.all_gather_object(scores, score[0])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
