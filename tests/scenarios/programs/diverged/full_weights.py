"""FSDP2: rank 0 puts the sharded weights together with ``full_tensor()`` and writes them; the others train on."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.SiLU(), torch.nn.Linear(2 * width, width)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The input and what the block adds."""
        return inputs + self.inner(inputs)


def save_weights(model: torch.nn.Module, path: Path) -> None:
    """Write the weights in full, on the CPU."""
    weights = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.full_tensor()
        weights[name] = value.cpu()
    torch.save(weights, path)


def main() -> None:
    """Twenty steps; the weights are saved after the twelfth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(Block(16), Block(16))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(1, 21):
        inputs = torch.randn(4, 16)
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {loss.item():.4f}\n", end="", flush=True)
        if step == 12:
            if dist.get_rank() == 0:
                save_weights(model, Path(tempfile.gettempdir()) / "weights.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
