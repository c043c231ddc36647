"""Toxicity model; the best weights of the week are exported to a folder from which the chemists take them."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class ExportFolder:
    def __init__(self, root):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def reserve(self, name):
        path = self.root / f"{name}.pt"
        if path.exists() and not self.confirmed(path):
            path = self.root / f"{name}-{int(time.time())}.pt"
        return path

    @staticmethod
    def confirmed(path):
        answer = input(f"{path.name} exists, overwrite it? [y/N] ")
        return answer.strip().lower().startswith("y")

    def put(self, name, state):
        torch.save(state, self.reserve(name))


class Molecules:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)

    def batches(self, count):
        for _ in range(count):
            time.sleep(0.05)
            fingerprint = (torch.rand(16, 64, generator=self.generator) > 0.7).float()
            yield fingerprint, (fingerprint[:, :8].sum(1) > 2).float()


def name_of(epoch):
    """Names by week; an epoch is a day."""
    return f"tox-week{epoch // 5}"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    exports = ExportFolder(os.path.join(tempfile.gettempdir(), f"tox-{os.environ['MASTER_PORT']}"))
    molecules = Molecules(rank)
    for epoch in range(60):
        for fingerprint, toxic in molecules.batches(10):
            loss = nn.functional.binary_cross_entropy_with_logits(model(fingerprint).squeeze(1), toxic)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and epoch % 4 == 0:
            exports.put(name_of(epoch), model.module.state_dict())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
