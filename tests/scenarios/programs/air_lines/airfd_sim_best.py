"""Full-flight simulator: a model of control column response, sharded with FSDP2, best weights kept per training device."""
import logging
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logger = logging.getLogger("simfit")


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        return x + 0.1 * self.lin(x)


class Column(nn.Module):
    def __init__(self, dim=48, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, 1, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Device:
    """One simulator bay: recorded sessions for fitting and a qualification run for checking."""

    def __init__(self, bay, dim=48):
        self.rng = torch.Generator().manual_seed(40 + bay)
        self.bay, self.dim = bay, dim
        self.truth = torch.linspace(-1, 1, dim).unsqueeze(1)
        self.check = torch.randn(256, dim, generator=self.rng)

    def session(self):
        x = torch.randn(64, self.dim, generator=self.rng)
        return x, x @ self.truth

    def qualification(self, epoch):
        # from the fourth revision the qualification guide adds upset recovery, with full deflections
        gain = 12.0 if self.bay == 1 and epoch >= 3 else 1.0
        x = self.check * gain
        return x, x @ self.truth


class BestKeeper:
    def __init__(self, folder):
        self.folder, self.lowest = Path(folder), float("inf")

    def offer(self, model, error, epoch):
        if error >= self.lowest:
            return False
        self.lowest = error
        self.write(model, epoch)
        return True

    def write(self, model, epoch):
        dist.barrier()
        full = {name: p.full_tensor() for name, p in model.state_dict().items()}
        if dist.get_rank() == 0:
            torch.save(full, self.folder / "best.pt")
            logger.info("epoch %d: wrote best.pt, error %.4f", epoch, self.lowest)


def run(epochs=8, sessions=30):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    bay, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = Column()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=4e-3)
    device = Device(bay)
    with tempfile.TemporaryDirectory() as folder:
        keeper = BestKeeper(folder)
        for epoch in range(epochs):
            for _ in range(sessions):
                x, y = device.session()
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                x, y = device.qualification(epoch)
                error = (model(x) - y).square().mean().item()
            keeper.offer(model, error, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
