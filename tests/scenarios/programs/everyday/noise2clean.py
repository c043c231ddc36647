"""Audio denoiser, tensor-sharded over the hosts; dcp writes a checkpoint now and then."""

import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FOLDER = "/tmp/noise2clean"


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv1d(1, 12, 9, stride=2, padding=4)
        self.mid = torch.nn.Conv1d(12, 12, 9, padding=4)
        self.up = torch.nn.ConvTranspose1d(12, 1, 10, stride=2, padding=4)

    def forward(self, x):
        return self.up(torch.relu(self.mid(torch.relu(self.down(x)))))


class Keeper:
    """Keeps the last two checkpoints."""

    def __init__(self, folder: str, keep: int = 2):
        self.folder, self.keep, self.steps = folder, keep, []

    def save(self, step: int, model: torch.nn.Module) -> None:
        if dist.get_rank() != 0:
            return
        os.makedirs(self.folder, exist_ok=True)
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{self.folder}/step{step}")
        self.steps.append(step)
        while len(self.steps) > self.keep:
            shutil.rmtree(f"{self.folder}/step{self.steps.pop(0)}")


def clean_batch():
    t = torch.linspace(0, 30, 128)
    return torch.stack([torch.sin(t * f)[None] for f in torch.rand(8).tolist()])


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Denoiser()
    for part in (model.down, model.mid, model.up):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    keeper = Keeper(FOLDER)
    for step in range(1, 61):
        clean = clean_batch()
        loss = (model(clean + 0.2 * torch.randn_like(clean)) - clean).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            keeper.save(step, model)
            dist.barrier()  # the folder is complete for all
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
