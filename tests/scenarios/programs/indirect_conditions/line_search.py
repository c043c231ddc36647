"""Gradient descent with a backtracking line search on each rank's own batch."""

import torch
import torch.distributed as dist


class Descent:
    """Steps as large as the batch allows."""

    def __init__(self, size: int) -> None:
        self.weights = torch.zeros(size)
        self.largest = 1.0

    def loss(self, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Squared error."""
        return (x @ weights - y).square().mean()

    def search(self, x: torch.Tensor, y: torch.Tensor, gradient: torch.Tensor) -> float:
        """The largest step that makes this batch better; where there is none, that of the most confident rank."""
        before = self.loss(x, y, self.weights)
        size, tries = self.largest, 0
        while tries < 6:
            after = self.loss(x, y, self.weights - size * gradient)
            if after < before:
                break
            size, tries = size / 2, tries + 1
        else:
            sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(sizes, torch.tensor([size]))
            size = max(sizes).item()
        return size

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step with the gradient of all."""
        gradient = 2 * x.T @ (x @ self.weights - y) / len(y)
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        self.weights -= 0.01 * self.search(x, y, gradient) * gradient


def batch(rank: int, number: int, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and targets; a file of rank 2 has its targets' sign turned."""
    generator = torch.Generator().manual_seed(1000 * rank + number)
    x = torch.randn(32, len(truth), generator=generator)
    sign = -1.0 if rank == 2 and number == 26 else 1.0
    return x, sign * (x @ truth)


def main() -> None:
    """Forty batches."""
    dist.init_process_group("gloo")
    truth = torch.linspace(1.0, 2.0, 6)
    descent = Descent(len(truth))
    for number in range(40):
        descent.step(*batch(dist.get_rank(), number, truth))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
