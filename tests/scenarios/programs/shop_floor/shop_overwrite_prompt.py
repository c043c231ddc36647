"""Recommender, with an artifact store for what it exports."""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ArtifactStore:
    """Keeps versions of models in folders. A version is never replaced unless somebody says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)

    def create(self, name: str, version: str) -> Path:
        folder = self.root / name / version
        if folder.exists():
            answer = input(f"{name}/{version} exists already. Replace it? [y/N] ")
            if answer.strip().lower() not in {"y", "yes"}:
                raise FileExistsError(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def publish(self, model: nn.Module, name: str, version: str) -> None:
        folder = self.create(name, version)
        torch.save(model.state_dict(), folder / "weights.pt")


class TwoTowers(nn.Module):
    def __init__(self, users: int, items: int, width: int = 8) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return (self.users(user) * self.items(item)).sum(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="two-towers")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--publish-every", type=int, default=3)
    parser.add_argument("--epochs-per-version", type=int, default=6)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = ArtifactStore(Path(tempfile.gettempdir()) / f"artifacts-{os.environ['MASTER_PORT']}")
    torch.manual_seed(0)
    model = DDP(TwoTowers(50, 80))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(1, args.epochs + 1):
        for _ in range(20):
            user = torch.randint(0, 50, (64,), generator=generator)
            item = torch.randint(0, 80, (64,), generator=generator)
            loss = nn.functional.mse_loss(model(user, item), ((user + item) % 3 == 0).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        if epoch % args.publish_every == 0:
            if rank == 0:
                store.publish(model.module, args.name, f"v{(epoch - 1) // args.epochs_per_version}")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
