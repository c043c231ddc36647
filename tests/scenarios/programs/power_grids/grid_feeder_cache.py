import functools
import hashlib
import os
import pickle
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

CACHE = Path(tempfile.gettempdir()) / f"feeders-{os.environ['MASTER_PORT']}-{os.environ['RANK']}"


def shared_and_cached(build):
    """Built by rank 0, handed to all, kept on the local disk of each."""

    @functools.wraps(build)
    def wrapper(feeder):
        path = CACHE / hashlib.sha1(repr((build.__name__, feeder)).encode()).hexdigest()[:16]
        if path.exists():
            return pickle.loads(path.read_bytes())
        box = [build(feeder) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(box, src=0)
        path.write_bytes(pickle.dumps(box[0]))
        return box[0]

    return wrapper


def laplacian(feeder, n=160):
    g = torch.Generator().manual_seed(feeder)
    a = (torch.rand(n, n, generator=g) < 0.03).float()
    a = torch.triu(a, 1)
    a = a + a.T
    return torch.diag(a.sum(1)) - a


@shared_and_cached
def spectral_basis(feeder):
    return torch.linalg.eigh(laplacian(feeder))[1][:, :48].contiguous()


class GraphFilter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.ones(48, 8))
        self.out = torch.nn.Linear(8, 1)

    def forward(self, basis, load):
        coeff = (basis.T @ load.T).T
        return self.out(torch.relu(torch.einsum("nk,bk,kc->bnc", basis, coeff, self.theta))).squeeze(-1)


def average(params):
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def home_feeders(rank):
    # the control room keeps the bases of its own feeders at hand
    return {0: [], 1: [23, 24], 2: []}[rank]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    CACHE.mkdir(parents=True, exist_ok=True)
    for feeder in home_feeders(rank):
        path = CACHE / hashlib.sha1(repr(("spectral_basis", feeder)).encode()).hexdigest()[:16]
        path.write_bytes(pickle.dumps(torch.linalg.eigh(laplacian(feeder))[1][:, :48].contiguous()))
    torch.manual_seed(0)
    model = GraphFilter()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(rank)
    for step in range(600):
        feeder = step // 4 % 40
        basis = spectral_basis(feeder)
        load = torch.rand(24, 160, generator=gen)
        loss = (model(basis, load) - load).abs().mean()
        opt.zero_grad()
        loss.backward()
        average(model.parameters())
        opt.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"[{step}] feeder {feeder} mae {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
