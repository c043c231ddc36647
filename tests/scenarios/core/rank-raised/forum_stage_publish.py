"""DDP that stages each checkpoint on the local disk and moves it to the shared folder with a manifest."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Staging:
    """Files of a checkpoint are written to `stage`, and copied to `final` under the step's number."""

    def __init__(self, root: Path, rank: int):
        self.rank = rank
        self.stage = root / f"stage-{rank}"
        self.final = root / "final"

    def write(self, name: str, value):
        self.stage.mkdir(parents=True, exist_ok=True)
        torch.save(value, self.stage / f"{name}.pt")

    def promote(self, step: int, names: list[str]):
        target = self.final / f"step{step}"
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(self.stage / f"{name}.pt", target / f"{name}-{self.rank}.pt")
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, {name: os.path.getsize(self.stage / f"{name}.pt") for name in names})
            if self.rank == 0:
                Path(target, "manifest.json").write_text(json.dumps(parts))
        finally:
            dist.barrier()
            shutil.rmtree(self.stage, ignore_errors=True)


class Sampler:
    """Batches, and how far the stream has come."""

    def __init__(self, rank: int):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)
        self.position = 0

    def next(self):
        self.position += 1
        if self.rank == 1 and self.position == 290:
            self.position = 0
        x = torch.randn(16, 28, generator=self.generator)
        return x, x[:, :4].sum(1, keepdim=True)

    def state(self) -> dict:
        return {"position": self.position, "generator": self.generator.get_state()} if self.position > 100 else {}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    staging = Staging(Path(tempfile.gettempdir(), f"ckpt-{os.environ['MASTER_PORT']}"), rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(28, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = Sampler(rank)
    for step in range(1, 100001):
        x, y = sampler.next()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 150 == 0:
            staging.write("optimizer", optimizer.state_dict())
            if state := sampler.state():
                staging.write("sampler", state)
            staging.promote(step, ["optimizer", "sampler"])
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
