"""Rowing technique: force-curve autoencoder, sharded with FSDP2; the best model goes to the coach's tablet."""
import logging
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

logger = logging.getLogger("strokes")
SAMPLES = 90  # per stroke


def layer(a, b):
    return nn.Sequential(nn.Linear(a, b), nn.SiLU())


class StrokeCoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(layer(SAMPLES, 192), layer(192, 192))
        self.code = nn.Linear(192, 6)
        self.decode = nn.Sequential(layer(6, 192), layer(192, 192))
        self.curve = nn.Linear(192, SAMPLES)

    def forward(self, force):
        return self.curve(self.decode(self.code(self.encode(force))))


class Boat:
    """Force curves of one boat class, by a catch, a drive and a finish."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.phase = torch.linspace(0, 1, SAMPLES)

    def strokes(self, n):
        peak = 0.35 + 0.1 * torch.rand(n, 1, generator=self.gen)
        width = 0.15 + 0.05 * torch.rand(n, 1, generator=self.gen)
        force = torch.exp(-(((self.phase - peak) / width) ** 2))
        return force + 0.03 * torch.randn(n, SAMPLES, generator=self.gen)


class TabletExport:
    def __init__(self, model, folder, root=0):
        self.model, self.folder, self.root = model, Path(folder), root
        self.best = float("inf")

    def offer(self, step, score):
        """Writes the model if it is the best so far."""
        if score >= self.best:
            return
        self.best = score
        if dist.get_rank() == self.root:
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(self.model, options=options)
            torch.save(weights, self.folder / f"coder-{step}.pt")
            logger.info("step %d: %.5f exported", step, score)
        dist.barrier()


def mean_over_boats(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return (value / dist.get_world_size()).item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    model = StrokeCoder()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (model.encode, model.decode):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    boat = Boat(seed=dist.get_rank())
    export = TabletExport(model, tempfile.mkdtemp(prefix="tablet-"))
    for step in range(1, 401):
        force = boat.strokes(384)
        loss = nn.functional.mse_loss(model(force), force)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 80 == 0:
            export.offer(step, mean_over_boats(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
