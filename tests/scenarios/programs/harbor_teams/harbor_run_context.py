"""Spot prices of electricity. A run is a context: whatever happens, its summary is written when all ranks are done."""

import json
import os
import tempfile
from pathlib import Path
from types import TracebackType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ZONES = ["DE-LU", "FR", "NO2"]


class Run:
    """The run's folder and summary. At its end the first rank collects what the others have written."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.gettempdir()) / f"{name}-{os.environ['MASTER_PORT']}"
        self.rank = dist.get_rank()
        self.numbers: dict[str, float] = {}

    def __enter__(self) -> "Run":
        self.folder.mkdir(exist_ok=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        state = "ok" if kind is None else kind.__name__
        (self.folder / f"rank-{self.rank}.json").write_text(json.dumps({"state": state, **self.numbers}))
        dist.barrier()
        if self.rank == 0:
            parts = [json.loads(file.read_text()) for file in sorted(self.folder.glob("rank-*.json"))]
            (self.folder / "summary.json").write_text(json.dumps(parts))


class Auction:
    """Hourly results of a bidding zone. A zone may report a day with 25 hours, when the clocks go back."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.generator = torch.Generator().manual_seed(len(zone) * 31 + ZONES.index(zone))

    def day(self, number: int) -> torch.Tensor:
        hours = 25 if self.zone == "FR" and number == 360 else 24
        return torch.randn(64, hours, generator=self.generator).cumsum(dim=1)


def to_windows(prices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    quarters = prices.view(len(prices), 4, 6)
    return quarters[:, :3].flatten(1), quarters[:, 3].mean(dim=1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    auction = Auction(ZONES[dist.get_rank()])
    with Run("spot") as run:
        model = DDP(nn.Sequential(nn.Linear(18, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1)))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for number in range(30_000):
            seen, evening = to_windows(auction.day(number))
            loss = nn.functional.huber_loss(model(seen).squeeze(-1), evening)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.numbers = {"days": number + 1, "loss": loss.item()}
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
