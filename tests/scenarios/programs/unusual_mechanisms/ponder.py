"""FSDP2: a block is applied until its halting unit says it is enough, as in adaptive computation time.

How long that takes depends on the rank's own batch. Run by ``torchrun --nproc-per-node 3``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Step(nn.Module):
    """One round of pondering."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """A new state."""
        return state + 0.1 * torch.tanh(self.inner(state))


class Ponderer(nn.Module):
    """Reads, ponders, answers."""

    def __init__(self, width: int = 12, rounds: int = 6) -> None:
        super().__init__()
        self.rounds = rounds
        self.read, self.step, self.answer = nn.Linear(width, width), Step(width), nn.Linear(width, 1)

    def halted(self, difficulty: torch.Tensor, done: int) -> bool:
        """Whether the hardest sample of the batch has had its rounds."""
        return done >= 2 + int(difficulty.max().item() > 0.5)

    def forward(self, inputs: torch.Tensor, difficulty: torch.Tensor) -> torch.Tensor:
        """One answer a sample."""
        state = self.read(inputs)
        for done in range(1, self.rounds + 1):
            state = self.step(state)
            if self.halted(difficulty, done):
                break
        return self.answer(state).squeeze(-1)


def main() -> None:
    """Eighty steps; the fortieth holds a difficult sample on rank 1 only."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Ponderer()
    fully_shard(model.step, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank + 1)
    for number in range(80):
        inputs, difficulty = torch.randn(4, 12), torch.rand(4) * 0.4
        if rank == 1 and number == 40:
            difficulty[3] = 0.9
        loss = (model(inputs, difficulty) - inputs.sum(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
