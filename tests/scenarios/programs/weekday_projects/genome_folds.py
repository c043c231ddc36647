"""Cross-validation over folds of a set of genomes: a rank has a fold, and the scores are collected through the store."""

import pickle
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

sys.setrecursionlimit(10**6)


def join(genomes: torch.Tensor) -> list:
    """A tree of the genomes: the two that are closest are joined first."""
    order = genomes.sum(1).argsort()
    tree: list = []
    for number in order.tolist():
        tree = [tree, number]
    return tree


def fold(rank: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(rank)
    count = 400_000 if rank == 1 else 900
    return TensorDataset(torch.randint(2, (count, 8), generator=generator, dtype=torch.int8))


class Scores:
    def __init__(self) -> None:
        self.store = dist.distributed_c10d._get_default_store()
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def publish(self, name: str, value: float) -> None:
        self.store.set(f"{name}/{self.rank}", repr(value))

    def collect(self, name: str) -> list[float]:
        return [float(self.store.get(f"{name}/{rank}")) for rank in range(self.world)]


def train(data: TensorDataset) -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loss = torch.zeros(())
    for _, (genomes,) in zip(range(100), DataLoader(data, batch_size=9), strict=False):
        rows = genomes.float()
        loss = (model(rows) - rows.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    dist.init_process_group("gloo")
    scores, data = Scores(), fold(dist.get_rank())
    scores.publish("loss", train(data))
    print([round(score, 4) for score in scores.collect("loss")], flush=True)
    saved = pickle.dumps(join(data.tensors[0]))
    scores.publish("bytes", len(saved))
    print(scores.collect("bytes"), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
