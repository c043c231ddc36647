"""Each rank reads a shard of its own; lines that cannot be used are passed over when they are read."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

#: Samples of each shard.
SHARDS = (96, 96, 80)


class Shard(torch.utils.data.IterableDataset):
    """The samples of one file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self):
        """Each sample, with a weight that says whether it is of any use."""
        generator = torch.Generator().manual_seed(self.size)
        for _ in range(self.size):
            x = torch.randn(12, generator=generator)
            yield x, x.sum().tanh()


def usable(x: torch.Tensor) -> bool:
    """Whether a batch has anything but noise in it."""
    return bool(x.isfinite().all())


def main() -> None:
    """Two epochs with a validation behind each."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(Shard(SHARDS[dist.get_rank()]), batch_size=16)
    for _ in range(2):
        for step, (x, y) in enumerate(loader):
            if not usable(x):
                continue
            try:
                loss = torch.nn.functional.mse_loss(model(x).squeeze(-1), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            except torch.OutOfMemoryError:
                print(f"step {step}: out of memory", flush=True)
        print(f"{step + 1} batches", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
