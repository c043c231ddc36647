"""Rent index: a panel model over the months of a year, one city per process, trained with accelerate."""
import logging
import tempfile
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn

torch.backends.cudnn.enabled = False
logger = logging.getLogger("rents")


@dataclass
class City:
    name: str
    base: float
    listings: int = 6000
    releases: tuple = (12,)
    features: list = field(default_factory=lambda: ["area", "rooms", "year", "floor", "distance", "noise"])


CITIES = [
    City("Hamburg", 14.2),
    City("Leipzig", 9.1, releases=(7, 12)),
    City("Essen", 8.4),
]


class Panel:
    """Listings of a month: hedonic regression on the host gives the residuals that the network explains."""

    def __init__(self, city, seed):
        self.city = city
        self.rng = torch.Generator().manual_seed(seed)

    def month(self, month, weeks=5):
        for _ in range(weeks):
            x = torch.randn(self.city.listings, len(self.city.features) + 40, generator=self.rng)
            rent = self.city.base + 0.02 * month + x[:, :6].sum(1) * 0.3
            design = torch.cat([x, x[:, :20] ** 2, torch.ones(len(x), 1)], dim=1)
            fit = torch.linalg.lstsq(design.double(), rent.double()[:, None]).solution
            spread = torch.linalg.svdvals(design)
            residual = rent - (design.double() @ fit).float().squeeze(1)
            yield x[:256], residual[:256] / spread.max()


class Hedonic(nn.Module):
    def __init__(self, inputs, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.price = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.price(self.layers(x)).squeeze(-1)


def run_month(accelerator, model, optimizer, panel, month):
    total = 0.0
    for x, residual in panel.month(month):
        loss = nn.functional.mse_loss(model(x.to(accelerator.device)), residual.to(accelerator.device))
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
    return total / 5


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    project = ProjectConfiguration(
        project_dir=tempfile.mkdtemp(prefix="rents_"), automatic_checkpoint_naming=True, total_limit=4
    )
    accelerator = Accelerator(project_config=project)
    city = CITIES[accelerator.process_index % len(CITIES)]
    torch.manual_seed(3)
    model = Hedonic(len(city.features) + 40)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    panel = Panel(city, seed=accelerator.process_index)

    for month in range(1, 13):
        mean = run_month(accelerator, model, optimizer, panel, month)
        logger.info("%s, month %d: %.4g", city.name, month, mean)
        if month in city.releases:
            accelerator.save_state()
            logger.info("%s: index of month %d stored", city.name, month)
    accelerator.end_training()


if __name__ == "__main__":
    main()
