"""Lightning: after the first epoch the first process writes an archive to a disk that takes 6 MB in a second."""

import os
import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Archive(L.Callback):
    """Writes the activations of the data set in pieces, each of which is on the disk before the next one."""

    def __init__(self, path: Path, megabytes: int, rate: float):
        self.path, self.megabytes, self.rate = path, megabytes, rate

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 0 and trainer.is_global_zero:
            begin = time.monotonic()
            with self.path.open("wb") as file:
                for written in range(1, self.megabytes + 1):
                    file.write(os.urandom(1 << 20))
                    file.flush()
                    os.fsync(file.fileno())
                    time.sleep(max(0.0, begin + written / self.rate - time.monotonic()))
            print(f"{self.path.stat().st_size} bytes in {time.monotonic() - begin:.1f} s", flush=True)
        trainer.strategy.barrier("archive")

    def teardown(self, trainer, module, stage):
        if trainer.is_global_zero:
            self.path.unlink(missing_ok=True)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main():
    torch.manual_seed(0)
    x = torch.randn(2400, 10)
    path = Path(tempfile.gettempdir(), f"archive-{os.environ['MASTER_PORT']}.bin")
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=3,
        callbacks=[Archive(path, megabytes=66, rate=6.0)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(Module(), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))


if __name__ == "__main__":
    main()
