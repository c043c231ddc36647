"""Forecasts traffic with a ZeroRedundancyOptimizer and writes a resumable state after each epoch."""

import io

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpoint:
    def __init__(self, model: DDP, optimizer: ZeroRedundancyOptimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.written = 0

    def write(self, epoch: int) -> None:
        self.optimizer.consolidate_state_dict(to=0)
        buffer = io.BytesIO()
        torch.save(
            {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}, buffer
        )
        self.written += buffer.tell()


def roads(rank: int, epoch: int):
    generator = torch.Generator().manual_seed(epoch * 17 + rank)
    for _ in range(15):
        history = torch.rand(8, 12, generator=generator)
        yield history, history[:, -3:].mean(1, keepdim=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    checkpoint = Checkpoint(model, optimizer)
    for epoch in range(6):
        for history, flow in roads(rank, epoch):
            loss = torch.nn.functional.l1_loss(model(history), flow)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            checkpoint.write(epoch)
            print(f"epoch {epoch}: {checkpoint.written} bytes so far", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
