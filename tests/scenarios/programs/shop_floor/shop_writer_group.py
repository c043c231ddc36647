"""Sharded writer and evaluation, each with a process group of its own that is made when it is first needed."""

import functools
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Writer:
    """Writes checkpoints from the ranks that have a fast disk."""

    def __init__(self, folder: Path, ranks: list[int]) -> None:
        self.folder, self.ranks = folder, ranks
        self.folder.mkdir(exist_ok=True)

    @functools.cached_property
    def group(self) -> dist.ProcessGroup:
        return dist.new_group(self.ranks)

    def write(self, model: nn.Module, step: int) -> None:
        if dist.get_rank() not in self.ranks:
            return
        torch.save(model.state_dict(), self.folder / f"{step}-{dist.get_rank()}.pt")
        dist.barrier(group=self.group)


class Evaluation:
    """Scores the model on all ranks, in a group apart from that of training."""

    @functools.cached_property
    def group(self) -> dist.ProcessGroup:
        return dist.new_group(backend="gloo")

    @torch.no_grad()
    def run(self, model: nn.Module, generator: torch.Generator) -> float:
        x = torch.randn(256, 15, generator=generator)
        right = ((model(x).squeeze(1) > 0) == (x.sum(1) > 0)).double().sum()
        dist.all_reduce(right, group=self.group)
        return right.item() / (256 * dist.get_world_size())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    writer = Writer(Path(tempfile.gettempdir()) / f"writer-{os.environ['MASTER_PORT']}", ranks=[0, 2])
    evaluation = Evaluation()
    torch.manual_seed(0)
    model = DDP(nn.Linear(15, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 2001):
        x = torch.randn(32, 15, generator=generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), (x.sum(1) > 0).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.025)
        if step % 50 == 0:
            writer.write(model.module, step)
        if step % 140 == 0:
            score = evaluation.run(model.module, generator)
            if rank == 0:
                print(f"step {step}: {score:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
