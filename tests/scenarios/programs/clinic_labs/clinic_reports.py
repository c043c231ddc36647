"""Image and report pretraining: studies come with images or as a report only; every tower is sharded."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 96


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class StudyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.report = Tower()
        self.image = Tower()
        self.joint = Tower()

    def forward(self, report, image=None):
        hidden = self.report(report)
        if image is not None:
            hidden = hidden + self.image(image).mean(1)
        return self.joint(hidden)


def study(rank, step):
    """What the archive has for this request: (report, image or None)."""
    generator = torch.Generator().manual_seed(step * 7 + rank)
    report = torch.randn(16, WIDTH, generator=generator)
    image = torch.randn(16, 9, WIDTH, generator=generator)
    outside_hospital = rank == 1 and step % 400 == 40
    return report, None if outside_hospital else image


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = StudyModel()
    for tower in (model.report, model.image, model.joint):
        fully_shard(tower, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2000):
        report, image = study(rank, step)
        hidden = model(report, image)
        loss = (hidden - report.roll(1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {float(loss):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
