"""Multi-task ADMET regressor on hashed fingerprints; each process scores one endpoint in validation."""
import logging
import os
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("admet")
ENDPOINTS = {"herg": 430, "caco2": 310, "clint": 402}
BITS = 256


@dataclass
class ValidationPlan:
    every: int = 15
    batches: int = 6
    full_at: int = 60


def fingerprint(smiles: str) -> torch.Tensor:
    bits = torch.zeros(BITS)
    for radius in (1, 2, 3, 4):
        for i in range(len(smiles) - radius):
            bits[hash(smiles[i : i + radius]) % BITS] = 1.0
    return bits


def molecule(i: int) -> str:
    return "".join("CNOcnos1=()"[(i * 7 + k * (3 + i % 5)) % 11] for k in range(36))


class Endpoint:
    def __init__(self, name: str, size: int):
        self.name = name
        self.x = torch.stack([fingerprint(molecule(i)) for i in range(size)])
        self.y = self.x[:, :16].sum(1, keepdim=True) / 8

    def batches(self, size=32):
        for start in range(0, len(self.x), size):
            yield self.x[start : start + size], self.y[start : start + size]


def validate(model: DDP, endpoint: Endpoint, steps: int) -> torch.Tensor:
    """Mean error over `steps` batches; -1 takes the whole endpoint."""
    model.eval()
    stream = endpoint.batches() if steps < 0 else islice(endpoint.batches(), steps)
    errors = []
    with torch.no_grad():
        for x, y in stream:
            running = (model.module(x) - y).abs().mean()
            dist.all_reduce(running)
            errors.append(running / dist.get_world_size())
    model.train()
    return torch.stack(errors).mean()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, plan = dist.get_rank(), ValidationPlan()
    name, size = list(ENDPOINTS.items())[rank]
    endpoint = Endpoint(name, size)
    torch.manual_seed(7)
    model = DDP(nn.Sequential(nn.Linear(BITS, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 400):
        rows = [fingerprint(molecule(step * 96 + rank * 32 + k)) for k in range(32)]
        x = torch.stack(rows)
        loss = nn.functional.mse_loss(model(x), x[:, :16].sum(1, keepdim=True) / 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % plan.every == 0:
            mae = validate(model, endpoint, -1 if step % plan.full_at == 0 else plan.batches)
            table = [torch.zeros(()) for _ in ENDPOINTS]
            dist.all_gather(table, mae)
            if rank == 0:
                log.info("step %d  %s", step, {n: round(float(v), 3) for n, v in zip(ENDPOINTS, table)})
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
