"""Lightning, steered from outside: a controller may tell the training to stop."""

import logging
import queue
import threading

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class TrainingController(Callback):
    """Listens on the first rank, and obeys between batches."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: queue.Queue[str] = queue.Queue()

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Somebody presses the button after a while."""
        if trainer.is_global_zero:
            timer = threading.Timer(1.5, self.messages.put, ["stop"])
            timer.daemon = True
            timer.start()

    def on_train_batch_end(self, trainer, module, outputs, batch, number) -> None:
        """Read the messages, then wait for each other."""
        if trainer.is_global_zero:
            while not self.messages.empty():
                if self.messages.get() == "stop":
                    trainer.should_stop = True
        trainer.strategy.barrier()


class Net(lightning.LightningModule):
    """Heat maps, in short."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 10))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Squared error."""
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """One long epoch, and a line at the end."""
    data = TensorDataset(torch.randn(60_000, 30), torch.randn(60_000, 10))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[TrainingController()],
    )
    trainer.fit(Net(), DataLoader(data, batch_size=4))
    trainer.strategy.barrier("trained")
    print(f"rank {trainer.global_rank}: {trainer.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
