"""Lightning with manual optimization: two optimizers, and a guard against batches whose loss is not finite."""

import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_num_threads(1)


class Spectra(Dataset):
    """Spectra in logarithmic units, as the instrument has written them."""

    def __init__(self, count: int = 3000):
        counts = torch.rand(count, 48, generator=torch.Generator().manual_seed(2)) + 0.05
        counts[1300, 17] = 0.0
        self.spectra = counts.log()

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, index):
        return self.spectra[index]


class Compressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 48))
        self.skipped = 0

    def training_step(self, batch, batch_idx):
        optimizers = self.optimizers()
        code = self.encoder(batch)
        loss = nn.functional.mse_loss(self.decoder(code), batch) + 1e-4 * code.square().mean()
        if not torch.isfinite(loss):
            self.skipped += 1
            return
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def on_train_epoch_end(self):
        seen = self.all_gather(torch.tensor(self.trainer.num_training_batches - self.skipped))
        self.print(f"epoch {self.current_epoch}: batches used {seen.tolist()}")
        self.skipped = 0

    def configure_optimizers(self):
        return [
            torch.optim.AdamW(self.encoder.parameters(), lr=1e-3),
            torch.optim.AdamW(self.decoder.parameters(), lr=2e-3),
        ]


if __name__ == "__main__":
    torch.manual_seed(3)
    spectra = Spectra()
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler = DistributedSampler(spectra, num_replicas=world, rank=rank, shuffle=False)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=30,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(Compressor(), DataLoader(spectra, batch_size=8, sampler=sampler))
