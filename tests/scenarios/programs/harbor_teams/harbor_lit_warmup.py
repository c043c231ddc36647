"""Lightning: route times. Before the training the data module works out the distances of all pairs of stops, once, on the first rank."""

import os
import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STOPS = 260
SECONDS = 10.0


class Routes(L.LightningDataModule):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.table = folder / "distances.pt"

    def prepare_data(self) -> None:
        """Shortest ways between all stops: a round of Floyd and Warshall per stop, then improvements while there is time."""
        places = torch.rand(STOPS, 2, generator=torch.Generator().manual_seed(0))
        distance = torch.cdist(places, places)
        distance[distance > 0.2] = float("inf")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for via in range(STOPS):
                distance = torch.minimum(distance, distance[:, via : via + 1] + distance[via : via + 1])
        self.table.parent.mkdir(exist_ok=True)
        torch.save(torch.nan_to_num(distance, posinf=9.0), self.table)

    def setup(self, stage: str) -> None:
        distance = torch.load(self.table)
        pairs = torch.randint(0, STOPS, (9600, 8), generator=torch.Generator().manual_seed(1))
        legs = distance[pairs[:, :-1], pairs[:, 1:]]
        self.data = TensorDataset(legs, legs.sum(dim=1))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=32, shuffle=True)


class RouteTime(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        legs, total = batch
        loss = nn.functional.smooth_l1_loss(self.net(legs).squeeze(-1), total)
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / f"routes-{os.environ['MASTER_PORT']}"
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(RouteTime(), datamodule=Routes(folder))
    print(f"rank {trainer.global_rank}: {trainer.callback_metrics['loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
