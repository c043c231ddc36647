"""Lightning: orchids by their measures; the loss of training is logged now and then."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Orchids(L.LightningModule):
    """Twelve measures, five kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        measures, kinds = batch
        scores = self.net(measures)
        loss = nn.functional.cross_entropy(scores, kinds)
        if self.global_rank == 0 and index % 10 == 9:
            right = (scores.argmax(dim=1) == kinds).float().mean()
            self.log("right", right, sync_dist=True)
            print(f"batch {index}: {self.trainer.logged_metrics.get('right', right).item():.2f} right")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Two epochs on three processes."""
    L.seed_everything(0)
    measures = torch.rand(900, 12)
    data = TensorDataset(measures, (measures.sum(dim=1)).long() % 5)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Orchids(), DataLoader(data, batch_size=6, shuffle=True))


if __name__ == "__main__":
    main()
