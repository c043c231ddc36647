"""Lattice field surrogate with an expensive check on the first rank: an exact spectrum after every third epoch."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
SITES = 12


def fields(generator, n=16):
    time.sleep(0.02)
    phi = torch.randn(n, SITES, generator=generator)
    action = (phi - phi.roll(1, -1)).pow(2).sum(-1) + 0.5 * phi.pow(2).sum(-1)
    return phi, action


@torch.no_grad()
def spectrum_error(net, seconds):
    """Compares with the exact operator: eigenvalues of many random deformations, as many as the check may take."""
    end, errors = time.monotonic() + seconds, []
    generator = torch.Generator().manual_seed(9)
    while time.monotonic() < end:
        noise = torch.randn(180, 180, generator=generator)
        values = torch.linalg.eigvalsh(noise + noise.T)
        phi = values[: 15 * SITES].view(-1, SITES) / 20
        exact = (phi - phi.roll(1, -1)).pow(2).sum(-1) + 0.5 * phi.pow(2).sum(-1)
        errors.append((net(phi)[:, 0] - exact).abs().mean().item())
    return sum(errors) / len(errors), len(errors)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(SITES, 48), nn.SiLU(), nn.Linear(48, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(5):
        for _ in range(20):
            phi, action = fields(generator)
            loss = (model(phi)[:, 0] - action).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 3 == 2:
            if rank == 0:
                error, operators = spectrum_error(model.module, seconds=11.0)
                print(f"epoch {epoch}: error {error:.3f} on {operators} operators", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
