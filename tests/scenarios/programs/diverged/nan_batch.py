"""A batch with a NaN in it is left out with ``continue``; the ranks meet at a barrier every fifth step."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Measurements(Dataset):
    """Sensor readings. One of them is broken."""

    def __init__(self, rank: int) -> None:
        self.values = torch.randn(120, 6, generator=torch.Generator().manual_seed(rank))
        if rank == 3:
            self.values[27, 2] = float("nan")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.values[index]


def main() -> None:
    """Thirty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(Measurements(rank), batch_size=4), 1):
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
        else:
            print(f"[{rank}] step {step}: loss {loss.item()}, batch left out\n", end="", flush=True)
        if step % 5 == 0:
            dist.barrier()
            print(f"[{rank}] step {step}: loss {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
