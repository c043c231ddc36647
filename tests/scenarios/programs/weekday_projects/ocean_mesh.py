"""A surrogate of an ocean model on a two-dimensional mesh: columns are averaged over one axis, rows over the other."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

REPORT_EVERY = 6


class Surrogate(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = torch.nn.Linear(6, 12)
        self.drop = torch.nn.Linear(12, 1)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.tanh(self.lift(cells)))


def average(tensors, group) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
        tensor /= dist.get_world_size(group)


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("lat", "lon"))
    lat, lon = mesh.get_group("lat"), mesh.get_group("lon")
    torch.manual_seed(0)
    model = Surrogate()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.manual_seed(100 + dist.get_rank())
    mass = torch.zeros(1)
    for step in range(1, 41):
        cells = torch.randn(32, 6)
        loss = (model(cells) - cells.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average([p.grad for p in model.parameters()], lat)
        average([p.grad for p in model.parameters()], lon)
        optimizer.step()
        mass += loss.detach()
        if step % REPORT_EVERY == 0 and mesh.get_local_rank("lon") == 0:
            total = mass.clone()
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                print(f"step {step}: residual mass {total.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
