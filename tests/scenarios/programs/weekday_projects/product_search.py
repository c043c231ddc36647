"""Evaluates a product search: every batch of queries is embedded, and the ranks exchange the results at once."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset, TensorDataset


class TwoTowers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = torch.nn.EmbeddingBag(300, 16)
        self.product = torch.nn.Embedding(500, 16)

    def search(self, words: torch.Tensor, top: int = 5) -> torch.Tensor:
        return (self.query(words) @ self.product.weight.T).topk(top).indices


def shard(dataset: TensorDataset) -> Subset:
    rank, world = dist.get_rank(), dist.get_world_size()
    per_rank = -(-len(dataset) // world)
    return Subset(dataset, range(rank * per_rank, min((rank + 1) * per_rank, len(dataset))))


@torch.no_grad()
def recall(model: TwoTowers, queries: TensorDataset) -> float:
    hits = torch.zeros(1)
    seen = torch.zeros(1)
    for words, bought in DataLoader(shard(queries), batch_size=19):
        found = model.search(words)
        hit = (found == bought[:, None]).any(1).sum().reshape(1).float()
        results = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(results, hit)
        hits += torch.stack(results).sum()
        seen += len(words)
    dist.all_reduce(seen)
    return (hits / seen).item()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = TwoTowers()
    queries = TensorDataset(torch.randint(300, (230, 4)), torch.randint(500, (230,)))
    for snapshot in range(5):
        with torch.no_grad():
            model.product.weight += 0.01 * torch.randn_like(model.product.weight)
        value = recall(model, queries)
        if dist.get_rank() == 0:
            print(f"snapshot {snapshot}: recall {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
