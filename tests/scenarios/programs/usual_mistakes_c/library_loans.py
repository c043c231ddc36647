"""How long books stay out. Branches have unlike numbers of loans, and each rank goes through all of its own."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loans = torch.randn(500 + 260 * rank, 9, generator=torch.Generator().manual_seed(rank))
    loader = DataLoader(loans, batch_size=10, shuffle=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(5):
        begin = time.monotonic()
        with model.join():
            for rows in loader:
                loss = nn.functional.mse_loss(model(rows[:, :8]), rows[:, 8:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.01)
        dist.barrier()
        print(f"[{rank}] epoch {epoch}: {len(loader)} batches, {time.monotonic() - begin:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
