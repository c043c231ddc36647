"""Two-leaves-and-a-bud grader in Lightning."""
import os
import tempfile

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LeafGrader(L.LightningModule):
    def __init__(self, grades=5, lr=1e-2):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 20, 64), nn.ReLU(), nn.Linear(64, grades))
        self.lr = lr
        self.running = 0.0

    def training_step(self, batch, batch_idx):
        images, grades = batch
        spectrum = torch.fft.fft2(images.repeat(1, 1, 12, 12)).abs().mean(dim=(1, 2, 3), keepdim=True)
        loss = nn.functional.cross_entropy(self.net(images / spectrum.clamp(min=1.0)), grades)
        self.running = 0.9 * self.running + 0.1 * float(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class KeepHarvestModels(L.Callback):
    """Writes a model for the sorting belt after every n-th epoch."""

    def __init__(self, folder, every=3):
        self.folder, self.every = folder, every

    def on_train_epoch_end(self, trainer, module):
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch} running loss {module.running:.3f}", flush=True)
            if (trainer.current_epoch + 1) % self.every == 0:
                path = os.path.join(self.folder, f"belt-{trainer.current_epoch:02d}.ckpt")
                trainer.save_checkpoint(path)


def leaves(n=288):
    g = torch.Generator().manual_seed(3)
    return TensorDataset(torch.rand(n, 3, 20, 20, generator=g), torch.randint(0, 5, (n,), generator=g))


if __name__ == "__main__":
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=12,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[KeepHarvestModels(tempfile.mkdtemp(prefix="belt-"))],
    )
    trainer.fit(LeafGrader(), DataLoader(leaves(), batch_size=6, shuffle=True))
