"""DDP over files of unlike length; the ranks agree on a number of steps before each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main() -> None:
    """Six epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = torch.randn(400 + 37 * rank, 12, generator=torch.Generator().manual_seed(rank))
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12)))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(6):
        steps = torch.tensor(len(loader))
        dist.all_reduce(steps, op=dist.ReduceOp.MIN)
        for _, x in zip(range(int(steps)), loader, strict=False):
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {int(steps)} steps, loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
