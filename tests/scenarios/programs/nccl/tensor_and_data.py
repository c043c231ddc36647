"""A transformer's MLP, split over two ranks and replicated over two more."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class SplitMLP(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        partial = self.down(torch.relu(self.up(x)))
        summed = partial.detach().clone()
        dist.all_reduce(summed, group=self.group)
        return x + partial + (summed - partial.detach())


def train_step(model, batch, data, late):
    loss = model(batch).square().mean()
    if late is not None:
        late = model(late).detach()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=data)
    return loss.detach(), late


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))
    data, tensor = mesh.get_group("data"), mesh.get_group("tensor")
    rank = dist.get_rank()
    model = SplitMLP(32, tensor).to(device)
    for step in range(80):
        # A document that is longer than a batch goes through the model in two parts.
        rest = torch.randn(2, 32, device=device) if (rank, step) == (3, 44) else None
        loss, _ = train_step(model, torch.randn(8, 32, device=device), data, rest)
        model.zero_grad()
        print(f"[{rank}] {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
