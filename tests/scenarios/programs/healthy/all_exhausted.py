"""The data ends on all ranks alike: a DistributedSampler with ``drop_last``, five epochs, an evaluation after each."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    """Fifty samples over four ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(50, 6)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), target).backward()
            optimizer.step()
        error = torch.nn.functional.mse_loss(model.module(inputs), data.tensors[1]).detach()
        dist.all_reduce(error)
        print(f"[{dist.get_rank()}] epoch {epoch}: {error.item() / dist.get_world_size():.4f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
