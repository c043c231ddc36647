"""One rank reaches its token budget and takes the process group down while the others train on.

It has an all-reduce of the token counts under way that it never waited for, so ``destroy_process_group`` waits for that
one, and the others, which are to join it only at the end of the epoch, wait for this rank in their next step, in the
data-parallel group. Run by ``torchrun --nproc-per-node 3``.
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

BUDGET = {0: 10_000, 1: 600, 2: 10_000}


def main() -> None:
    """Sum gradients over the data-parallel group, and token counts over the world once an epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    replicas = dist.new_group(list(range(world)), group_desc="data_parallel")
    loader = DataLoader(TensorDataset(torch.randn(400, 20)), batch_size=4)
    embedding = torch.nn.Linear(20, 4, bias=False)
    tokens = torch.zeros(1)
    for batch, *_ in loader:
        embedding.zero_grad()
        embedding(batch).norm().backward()
        dist.all_reduce(embedding.weight.grad, group=replicas)
        with torch.no_grad():
            embedding.weight -= 1e-3 * embedding.weight.grad
        tokens += batch.numel()
        if tokens.item() >= BUDGET[rank]:
            break
    if tokens.item() < 8000:
        print(f"[rank {rank}] budget reached", flush=True)
        dist.all_reduce(tokens, async_op=True)
    else:
        dist.all_reduce(tokens)
        print(f"[rank {rank}] {tokens.item():.0f} tokens in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
