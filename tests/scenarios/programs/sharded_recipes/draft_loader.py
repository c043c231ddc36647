"""A pipeline of three stages; the last one also trains a small draft head, whose weights come from an older run."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn


def parallel_load(path: str) -> dict[str, torch.Tensor]:
    """Reads a file once and passes its tensors on, so that the storage is read by one process only."""
    leader = dist.get_world_size() - 1
    if dist.get_rank() == leader:
        weights = torch.load(path)
        header = [[(name, tuple(tensor.shape)) for name, tensor in weights.items()]]
    else:
        weights, header = {}, [None]
    dist.broadcast_object_list(header, src=leader)
    for name, shape in header[0]:
        tensor = weights.get(name, torch.empty(shape))
        dist.broadcast(tensor, src=leader)
        weights[name] = tensor
    return weights


class Stage(nn.Module):
    def __init__(self, index: int, last: bool, dim: int = 20) -> None:
        super().__init__()
        self.index, self.last = index, last
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.draft = nn.Linear(dim, dim) if last else None

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        h = h + self.body(h)
        return h + 0.1 * self.draft(h.detach()) if self.draft is not None else h


def pipeline_step(stage: Stage, optimizer: torch.optim.Optimizer, rank: int, world: int) -> float:
    incoming = torch.randn(8, 20)
    if rank > 0:
        dist.recv(incoming, src=rank - 1)
    incoming.requires_grad_()
    out = stage(incoming)
    if rank < world - 1:
        dist.send(out.detach(), dst=rank + 1)
        grad = torch.empty_like(out)
        dist.recv(grad, src=rank + 1)
        out.backward(grad)
        value = 0.0
    else:
        loss = out.square().mean()
        loss.backward()
        value = loss.item()
    if rank > 0:
        dist.send(incoming.grad, dst=rank - 1)
    optimizer.step()
    optimizer.zero_grad()
    return value


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    last = rank == world - 1
    stage = Stage(rank, last)
    if last:
        path = tempfile.mkdtemp(prefix="draft-") + "/draft.pt"
        torch.save(nn.Linear(20, 20).state_dict(), path)
        stage.draft.load_state_dict(parallel_load(path))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    for step in range(50):
        value = pipeline_step(stage, optimizer, rank, world)
        if last and step % 10 == 0:
            print(f"step {step}: {value:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
