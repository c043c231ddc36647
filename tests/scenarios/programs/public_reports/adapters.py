"""Layers spread over the ranks, with low-rank adapters whose budget is cut as training goes on."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 20
BUDGET = {0: 200, 6: 7, 12: 5, 18: 3}


class Adapted(nn.Module):
    """A frozen layer and its adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.base.requires_grad_(False)
        self.down = nn.Linear(WIDTH, 4, bias=False)
        self.up = nn.Linear(4, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both paths."""
        return x + self.base(x) + self.up(self.down(x))


def get_grad_norm(parameters: list[nn.Parameter]) -> float:
    """Norm of the gradients of all ranks."""
    norm = 0.0
    grads_for_norm = [p.grad.detach() for p in parameters if p.grad is not None]
    if grads_for_norm:
        total = torch.stack([grad.square().sum() for grad in grads_for_norm]).sum()
        dist.all_reduce(total)
        norm = total.sqrt().item()
    return norm


def prune(layers: nn.ModuleList, importance: torch.Tensor, budget: int) -> None:
    """Keep the adapters of the ``budget`` layers that matter most, over all ranks."""
    rank = dist.get_rank()
    kept = importance.flatten().topk(min(budget, importance.numel())).indices.tolist()
    for number, layer in enumerate(layers):
        trained = rank * len(layers) + number in kept
        for p in (*layer.down.parameters(), *layer.up.parameters()):
            p.requires_grad_(trained)


def main() -> None:
    """Thirty steps with two layers a rank."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = nn.ModuleList(Adapted() for _ in range(2))
    importance = torch.tensor([[0.9, 0.7], [0.6, 0.8], [0.2, 0.1], [0.5, 0.4]])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for step in range(30):
        batch = [torch.randn(8, WIDTH) if rank == 0 else None]
        dist.broadcast_object_list(batch, src=0)
        if step in BUDGET:
            prune(layers, importance[:world], BUDGET[step])
        x = batch[0].clone().requires_grad_()
        for layer in layers:
            x = layer(x)
        x.square().mean().backward()
        norm = get_grad_norm(list(layers.parameters()))
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / max(norm, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
