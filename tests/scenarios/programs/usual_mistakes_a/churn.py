"""DDP: which customers will leave, by region, with early stopping on each region's customers of the last quarter."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIELDS = 20
PATIENCE = 3


class Region:
    """Customers of this year, and those of its last quarter."""

    def __init__(self, number: int) -> None:
        generator = torch.Generator().manual_seed(60 + number)
        self.customers = torch.randn(1600, FIELDS, generator=generator)
        self.left = (self.customers[:, 0] + self.customers[:, 1] > 0).float()
        self.quarter = torch.randn(400, FIELDS, generator=generator)
        trend = -1 if number == 3 else 1
        self.quarter_left = (trend * (self.quarter[:, 0] + self.quarter[:, 1]) > 0).float()

    @torch.no_grad()
    def validate(self, model: nn.Module) -> float:
        """The loss on the last quarter."""
        scores = model(self.quarter).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(scores, self.quarter_left).item()


def main() -> None:
    """Forty epochs, or fewer."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    region = Region(rank)
    network = nn.Sequential(nn.Linear(FIELDS, 32), nn.ReLU(), nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, bad_epochs, kept = float("inf"), 0, {}

    for epoch in range(40):
        for rows in torch.randperm(len(region.customers)).split(50):
            scores = model(region.customers[rows]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, region.left[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        validation = region.validate(network)
        if validation < best:
            best, bad_epochs, kept = validation, 0, copy.deepcopy(network.state_dict())
        else:
            bad_epochs += 1
        if bad_epochs >= PATIENCE:
            print(f"[{rank}] no better since epoch {epoch - PATIENCE}")
            break

    network.load_state_dict(kept)
    results = [torch.empty(1) for _ in range(world)]
    dist.all_gather(results, torch.tensor([region.validate(network)]))
    if rank == 0:
        print("by region:", [round(r.item(), 3) for r in results])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
