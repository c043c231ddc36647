"""FSDP2: a language model in miniature; loss and gradient norm are logged every ten steps."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

logger = logging.getLogger("train")


class Block(nn.Module):
    """A residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds to x."""
        return x + self.down(torch.relu(self.up(x)))


class Logger:
    """What goes to the console, from one process."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.main = dist.get_rank() == 0

    def write(self, step: int, loss: torch.Tensor) -> None:
        """A line."""
        if not self.main:
            return
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters()])
        logger.warning("step %d loss %.4f norm %.4f", step, loss.item(), norm.full_tensor().item())


def main() -> None:
    """Forty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 16), Block(16), Block(16), nn.Linear(16, 50))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    log = Logger(model)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(1, 41):
        tokens = torch.randint(0, 50, (2, 12))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if step % 10 == 0:
            log.write(step, loss)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
