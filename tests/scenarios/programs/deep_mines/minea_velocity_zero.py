"""First-break tomography: a network maps travel times of a shot to a layered velocity model."""
import dataclasses
import logging
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("tomo")


@dataclasses.dataclass
class Config:
    receivers: int = 192
    layers: int = 24
    width: int = 96
    shots: int = 16
    steps: int = 400
    save_every: int = 45
    lr: float = 5e-3


def travel_times(cfg, step, rank):
    """Straight rays through a random layered half-space."""
    g = torch.Generator().manual_seed(7919 * step + rank)
    velocity = 1500 + 3500 * torch.rand(cfg.shots, cfg.layers, generator=g).cumsum(1) / cfg.layers
    offset = torch.linspace(5, 950, cfg.receivers)
    depth = torch.linspace(0, 400, 20000)
    slowness = (1 / velocity).repeat_interleave(cfg.receivers // cfg.layers, dim=1)
    path = torch.sqrt(offset[:, None] ** 2 + depth[None, :] ** 2).mean(dim=1)
    return slowness * path, velocity / 5000


class Checkpointer:
    def __init__(self, folder, every):
        self.folder, self.every = pathlib.Path(folder), every

    def due(self, step):
        return step % self.every == self.every - 1

    def write(self, step, model, optimizer):
        optimizer.consolidate_state_dict(to=0)
        state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, self.folder / f"velocity-{step + 1:05d}.pt")
        log.info("saved %s", self.folder)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cfg = Config()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(cfg.receivers, cfg.width), nn.Tanh(),
        nn.Linear(cfg.width, cfg.width), nn.Tanh(),
        nn.Linear(cfg.width, cfg.layers),
    ).to("cuda")
    model = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.SGD, lr=cfg.lr, momentum=0.9
    )
    saver = Checkpointer(tempfile.mkdtemp(prefix="tomo-"), cfg.save_every)

    for step in range(cfg.steps):
        times, velocity = travel_times(cfg, step, rank)
        loss = nn.functional.mse_loss(model(times.to("cuda")), velocity.to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        misfit = loss.item()
        if step % 15 == 0 and rank == 0:
            log.info("step %d misfit %.4f", step, misfit)
        if rank == 0 and saver.due(step):
            saver.write(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
