"""Pretrains a speech encoder whose layers are sharded with fully_shard, and reports the norm of the gradients."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.mix = torch.nn.Linear(width, width)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames + torch.relu(self.mix(self.norm(frames)))


class Encoder(torch.nn.Module):
    def __init__(self, width: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.project = torch.nn.Linear(width, 16)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            frames = block(frames)
        return self.project(frames)


def masked(frames: torch.Tensor) -> torch.Tensor:
    return frames * (torch.rand(frames.shape[:2]) > 0.3).unsqueeze(-1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Encoder()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(rank)
    for step in range(30):
        frames = torch.randn(4, 10, 24)
        loss = (model(masked(frames)) - frames[..., :16]).square().mean()
        loss.backward()
        if rank == 0 and step % 5 == 4:
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            print(f"step {step} loss {loss.item():.3f} norm {norm.full_tensor().item():.3f}", flush=True)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
