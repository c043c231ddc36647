"""Mixture of experts on a 2 x 2 mesh: routed experts over one dimension, a shared expert over the other.

A rank without routed tokens does its part of the shared expert first, so that the others' tokens have time to arrive.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class Layer(nn.Module):
    """Routed and shared experts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "ep"))
        self.ep, self.tp = mesh.get_group("ep"), mesh.get_group("tp")
        self.routed, self.shared = nn.Linear(width, width), nn.Linear(width, width)

    def through_routed(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens to their experts and back."""
        there, back = torch.empty_like(x), torch.empty_like(x)
        dist.all_to_all_single(there, x.contiguous(), group=self.ep)
        dist.all_to_all_single(back, self.routed(there), group=self.ep)
        return back

    def through_shared(self, x: torch.Tensor) -> torch.Tensor:
        """Partial sums."""
        y = self.shared(x)
        dist.all_reduce(y, group=self.tp)
        return y

    def forward(self, x: torch.Tensor, routed: int) -> torch.Tensor:
        """x: (tokens, width)."""
        if routed == 0:
            y = self.through_shared(x)
            return y + self.through_routed(torch.zeros_like(x))
        y = self.through_routed(x)
        return y + self.through_shared(x)


@torch.no_grad()
def main() -> None:
    """Sixty batches through a layer."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layer = Layer(8)
    x = torch.randn(6, 8)
    for number in range(60):
        load = [3 + number % 4, 2 + number % 3, 1 + number % 5, 4]
        if number == 37:
            load[0] = load[3] = 0
        x = torch.tanh(layer(x, routed=load[rank]))
    print(f"[{rank}] {x.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
