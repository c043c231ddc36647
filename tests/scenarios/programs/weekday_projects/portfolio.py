"""Fits a covariance model of asset returns on windows of prices, with the ranks' likelihoods summed."""

import logging

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("portfolio")
ASSETS = 5


def window(rank: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank * 500 + number)
    prices = torch.randn(40, ASSETS, generator=generator).cumsum(0)
    if rank == 0 and number == 11:
        prices[:, 2] = 17.0  # the exchange was closed
    return prices.diff(dim=0)


def log_likelihood(returns: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    covariance = returns.T.cov() * scale.exp()
    root = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(root, returns.T, upper=False)
    return -(white.square().mean() + 2 * root.diagonal().log().sum() / ASSETS)


class Fit:
    def __init__(self) -> None:
        self.scale = torch.zeros(ASSETS, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.scale], 0.01)
        self.world = dist.get_world_size()

    def step(self, returns: torch.Tensor) -> float:
        loss = -log_likelihood(returns, self.scale)
        self.optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(self.scale.grad)
        self.scale.grad /= self.world
        self.optimizer.step()
        return loss.item()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    fit = Fit()
    for number in range(50):
        try:
            loss = fit.step(window(rank, number))
        except torch.linalg.LinAlgError as error:
            log.warning("rank %d, window %d: %s", rank, number, error)
            continue
        if rank == 0 and number % 10 == 0:
            log.info("window %d: %.3f", number, loss)
    fits = [torch.zeros(ASSETS) for _ in range(fit.world)]
    dist.all_gather(fits, fit.scale.detach())
    spread = torch.stack(fits).std(0).max().item()
    log.info("rank %d: the fits differ by %.2g", rank, spread)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
