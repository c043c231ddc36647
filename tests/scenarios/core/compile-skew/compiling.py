"""Long batches go through torch.compile, and one rank gets its first long one early; the others wait for its gradients.

Nothing hangs: the compiler ends and the job goes on. Run by ``torchrun --nproc-per-node 2``.
"""

import torch
import torch.distributed as dist
from torch import nn


class Mixer(nn.Module):
    """Many small different operations, so that there is much to compile."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix along both axes."""
        for number, layer in enumerate(self.layers):
            y = torch.tanh(layer(x)) * torch.sigmoid(x.roll(number + 1, 1)) + x.cumsum(1) / (number + 2)
            x = torch.softmax(y, -1) + torch.nn.functional.gelu(y.flip(1)) * (number + 0.5)
        return x.sum()


def batch_length(rank: int, step: int) -> int:
    """Buckets of lengths; the longer bucket comes first on rank 1."""
    return 48 if rank == 1 and step >= 3 else 32


def main() -> None:
    """Ten steps; compiling pays for long batches only."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mixer = Mixer(width=16, depth=5)
    compiled = torch.compile(mixer, dynamic=False)
    for step in range(10):
        x = torch.randn(2, batch_length(rank, step), 16)
        loss = compiled(x) if x.shape[1] > 32 else mixer(x)
        loss.backward()
        for parameter in mixer.parameters():
            dist.all_reduce(parameter.grad)
        mixer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
