"""Fermentation forecaster for the tank hall: a small sequence model, sharded with fully_shard."""
import dataclasses
import logging
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logger = logging.getLogger("cellar")


@dataclasses.dataclass
class Config:
    width: int = 96
    depth: int = 3
    window: int = 24
    steps: int = 200
    export_every: int = 40
    lr: float = 2e-3


class TankBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Fermenter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inlet = nn.Linear(6, cfg.width)
        self.blocks = nn.ModuleList([TankBlock(cfg.width) for _ in range(cfg.depth)])
        self.outlet = nn.Linear(cfg.width, 6)

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = block(x)
        return self.outlet(x)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
        block.set_force_sum_reduction_for_comms(True)
    fully_shard(model, mesh=mesh)
    model.set_force_sum_reduction_for_comms(True)
    return model


def readings(cfg, seed):
    """Brix, temperature, pH, SO2, turbidity and level, hour by hour."""
    g = torch.Generator().manual_seed(seed)
    while True:
        drift = torch.randn(12, cfg.window + 1, 6, generator=g).cumsum(1) * 0.1
        yield drift[:, :-1], drift[:, 1:]


def export(model, folder, step):
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    target = folder / f"fermenter-{step:05d}.pt"
    torch.save(weights, target)
    logger.info("exported %s", target.name)


def main(cfg=Config()):  # noqa: B008
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = shard(Fermenter(cfg), mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cellar-"))
    stream = readings(cfg, dist.get_rank())
    for step in range(1, cfg.steps + 1):
        x, y = next(stream)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % cfg.export_every == 0:
            if dist.get_rank() == 0:
                logger.info("step %d loss %.4f", step, loss.item())
                export(model, folder, step)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
