"""FSDP2: gradients are clipped on the ranks that find their own large. The norm of sharded gradients takes all ranks."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Net(torch.nn.Module):
    """Layers that are sharded one by one."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """All layers."""
        for layer in self.layers:
            inputs = torch.tanh(layer(inputs))
        return inputs


def local_norm(model: torch.nn.Module) -> float:
    """The norm of what this rank has of the gradients."""
    return sum(p.grad.to_local().square().sum().item() for p in model.parameters()) ** 0.5


def main() -> None:
    """Thirty steps. From step 15 on the first rows of the weights have the larger gradients."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Net(18, 3)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    weights = torch.ones(18)
    for step in range(1, 31):
        if step == 15:
            weights[:6] = 40.0
        inputs = torch.randn(8, 18)
        loss = ((model(inputs) - inputs).square() * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        if local_norm(model) > 6.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 6.0)
        optimizer.step()
        print(f"[{dist.get_rank()}] step {step}: {loss.item():.4f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
