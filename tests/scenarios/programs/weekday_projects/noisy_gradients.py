"""Trains on noisy sensor data; a step with a bad gradient anywhere is left out everywhere."""

import time

import torch
import torch.distributed as dist


def batch(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank * 1000 + step)
    rows = torch.randn(8, 6, generator=generator)
    if (step + rank) % 9 == 0:
        rows[0, 0] = float("inf")
    return rows


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    skipped = 0
    for step in range(100):
        rows = batch(rank, step)
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.nn.utils.parameters_to_vector(p.grad for p in model.parameters())
        bad = torch.tensor([0 if flat.isfinite().all() else 1])
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad:
            skipped += 1
            time.sleep(0.1 * rank)
            continue
        dist.all_reduce(flat)
        torch.nn.utils.vector_to_parameters(flat / world, (p.grad for p in model.parameters()))
        optimizer.step()
    print(f"[{rank}] left out {skipped} steps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
