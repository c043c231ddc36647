"""Log-prices of second-hand containers. Batches whose loss is not finite are left out."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger("containers")
BATCHES = 420


class Auctions:
    """Auctions of the rank's harbour: size, age, condition and so on, and the price."""

    def __init__(self, harbour: int) -> None:
        generator = torch.Generator().manual_seed(30 + harbour)
        self.facts = torch.randn(BATCHES, 128, 14, generator=generator)
        self.prices = self.facts[..., :4].sum(dim=2).exp() + 0.01
        if harbour == 1:
            self.prices[205, 17] = -1.0  # withdrawn from sale

    def __iter__(self):
        return zip(self.facts, self.prices)


class PriceNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(14, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, facts: torch.Tensor) -> torch.Tensor:
        return self.net(facts).squeeze(-1)


class Trainer:
    def __init__(self, model: nn.Module, auctions: Auctions) -> None:
        self.model, self.auctions = DDP(model), auctions
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.world = dist.get_world_size()

    def train_epoch(self) -> float:
        total, used = 0.0, 0
        for number, (facts, prices) in enumerate(self.auctions):
            loss = nn.functional.mse_loss(self.model(facts), prices.log())
            if not torch.isfinite(loss):
                logger.warning("batch %d: loss is %s, skipped", number, loss.item())
                continue
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, used = total + loss.item(), used + 1
        return total / used

    def mean_of_ranks(self, value: float) -> float:
        parts = [torch.zeros(1, dtype=torch.float64) for _ in range(self.world)]
        dist.all_gather(parts, torch.tensor([value], dtype=torch.float64))
        return torch.cat(parts).mean().item()

    def run(self, epochs: int) -> None:
        for epoch in range(epochs):
            mean = self.mean_of_ranks(self.train_epoch())
            logger.info("epoch %d: %.4f", epoch, mean)


def main() -> None:
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(PriceNet(), Auctions(dist.get_rank())).run(epochs=20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
