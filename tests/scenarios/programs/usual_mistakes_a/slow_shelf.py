"""FSDP2 and torch.distributed.checkpoint: sound levels; the shelf that checkpoints go to is slow for the first rank."""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


class ShelfWriter(dcp.FileSystemWriter):
    """Writes at the speed that the shelf allows."""

    def write_data(self, plan, planner):
        """The files of this rank."""
        if dist.get_rank() == 0:
            time.sleep(9)
        return super().write_data(plan, planner)


def main() -> None:
    """Forty steps and two checkpoints."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = [tempfile.mkdtemp(prefix="levels-")]
    dist.broadcast_object_list(folder)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 41):
        levels = torch.randn(8, 16, generator=generator)
        loss = (model(levels) - levels.amax(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            state = {"model": get_model_state_dict(model)}
            dcp.save(state, storage_writer=ShelfWriter(f"{folder[0]}/step{step}"))
            print(f"[{rank}] step {step}: saved")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
