"""DDP; only the first process has the checkpoint's disk. It says whether there is one, and hands out what it has read."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Checkpoints:
    """On the disk of the first process."""

    def __init__(self) -> None:
        self.main = dist.get_rank() == 0
        self.path = Path(tempfile.mkdtemp()) / "last.pt" if self.main else None

    def exists(self) -> bool:
        """Known to all."""
        answer = [self.path is not None and self.path.exists()]
        dist.broadcast_object_list(answer, src=0)
        return answer[0]

    def save(self, model: nn.Module, step: int) -> None:
        """By the first process; nobody waits for it."""
        if self.main:
            torch.save({"model": model.module.state_dict(), "step": step}, self.path)
            time.sleep(1.0)

    def load(self, model: nn.Module) -> int:
        """The step, and the weights, on all."""
        state = [torch.load(self.path) if self.main else None]
        dist.broadcast_object_list(state, src=0)
        model.module.load_state_dict(state[0]["model"])
        return state[0]["step"]


def main() -> None:
    """Three parts of thirty steps, each from where the last one was."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    checkpoints = Checkpoints()
    for part in range(3):
        model = DistributedDataParallel(nn.Linear(5, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        first = checkpoints.load(model) + 1 if checkpoints.exists() else 0
        for _ in range(first, first + 30):
            optimizer.zero_grad()
            model(torch.randn(4, 5)).square().mean().backward()
            optimizer.step()
        checkpoints.save(model, first + 29)
        if dist.get_rank() == 0:
            print(f"part {part}: steps {first} to {first + 29}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
