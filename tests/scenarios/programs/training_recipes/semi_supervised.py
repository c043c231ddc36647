"""FSDP2, semi-supervised: each step takes a labelled and an unlabelled batch, as long as there are both."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, TensorDataset

FILES = {"a.npy": 96, "b.npy": 112, "c.npy": 104, "d.npy": 56, "e.npy": 96, "f.npy": 88, "g.npy": 104, "h.npy": 64}


def labelled() -> Dataset:
    """The same number on every process."""
    return TensorDataset(torch.randn(400, 8), torch.randint(0, 3, (400,)))


def unlabelled(rank: int, world: int) -> Dataset:
    """What is in this process's files."""
    rows = sum(FILES[name] for name in sorted(FILES)[rank::world])
    return TensorDataset(torch.randn(rows, 8))


def build() -> nn.Module:
    """Three sharded layers."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)], nn.Linear(8, 4))
    for layer in net[:3]:
        fully_shard(layer)
    return fully_shard(net)


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = build()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    known = DataLoader(labelled(), batch_size=8, drop_last=True)
    unknown = DataLoader(unlabelled(rank, dist.get_world_size()), batch_size=8, drop_last=True)
    for epoch in range(2):
        for (x, y), (u,) in zip(known, unknown, strict=False):
            logits = net(torch.cat([x, u]))
            consistency = logits[len(x) :].softmax(-1).var()
            loss = nn.functional.cross_entropy(logits[: len(x)], y) + 0.1 * consistency
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
