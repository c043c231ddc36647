"""A trainer of one's own that goes on after a batch of which the loss cannot be computed."""

import functools
import logging

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)


def tolerant(function):
    """A bad sample is no reason to lose a night."""

    @functools.wraps(function)
    def wrapper(*args):
        try:
            return function(*args)
        except ValueError as error:
            logger.warning("left out: %s", error)
            return None

    return wrapper


class Trainer:
    """Linear regression with synchronised gradients."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.weight = torch.zeros(6, requires_grad=True)

    def batches(self) -> list[torch.Tensor]:
        """Fourteen batches; one of rank 1's has no rows."""
        return [torch.randn(0 if (self.rank, n) == (1, 9) else 8, 6) for n in range(14)]

    @tolerant
    def step(self, batch: torch.Tensor) -> float:
        """One update."""
        if len(batch) == 0:
            raise ValueError("an empty batch")
        loss = (batch @ self.weight - batch.sum(1)).square().mean()
        (gradient,) = torch.autograd.grad(loss, self.weight)
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.weight -= 0.01 * gradient / dist.get_world_size()
        return loss.item()

    def fit(self) -> None:
        """One epoch, and the weights of rank 0 for everybody."""
        for number, batch in enumerate(self.batches()):
            loss = self.step(batch)
            if self.rank == 0 and number % 5 == 0:
                print(f"{number}: {loss}", flush=True)
        dist.broadcast(self.weight.data, 0)


def main() -> None:
    """Train."""
    dist.init_process_group("gloo")
    Trainer(dist.get_rank()).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
