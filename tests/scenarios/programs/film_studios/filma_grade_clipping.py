"""Match grader: learns the colourist's lift/gamma/gain from graded pairs (Lightning)."""
import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class GradedPairs(Dataset):
    """Shots in log encoding with the grade that the colourist gave them."""

    def __init__(self, shots=4800, pixels=512, pyro=(4351,)):
        self.shots, self.pixels, self.pyro = shots, pixels, set(pyro)

    def __len__(self):
        return self.shots

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        exposure = 0.15 + 0.5 * torch.rand(1, generator=gen)
        if index in self.pyro:
            exposure = exposure + 9.0
        log_rgb = (exposure + 0.2 * torch.rand(self.pixels, 3, generator=gen)).clamp(0, 1)
        grade = torch.tensor([0.9, 1.0, 1.1])
        return log_rgb, log_rgb.pow(grade), index


class EditOrder(L.LightningDataModule):
    """Takes stay in the order of the edit."""

    def train_dataloader(self):
        pairs = GradedPairs()
        order = DistributedSampler(pairs, self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(pairs, batch_size=8, sampler=order)


class MatchGrader(L.LightningModule):
    def __init__(self, width=64, legal=0.98):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.curve = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 3))
        self.seen = []

    def legal_pixels(self, rgb):
        return (rgb < self.hparams.legal).all(dim=-1)

    def training_step(self, batch, batch_idx):
        log_rgb, graded, ids = batch
        keep = self.legal_pixels(log_rgb)
        out = self.curve(log_rgb)
        per_shot = ((out - graded).abs().mean(-1) * keep).sum(1) / keep.sum(1)
        loss = per_shot.mean()
        if not torch.isfinite(loss):
            print(f"loss is {loss.item()} for shots {ids.tolist()}", flush=True)
            return
        optim = self.optimizers()
        optim.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optim, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        optim.step()
        self.seen.append(float(loss.detach()))

    def on_train_epoch_end(self):
        last = torch.tensor(self.seen[-5:])
        table = self.all_gather(last)
        if self.global_rank == 0:
            print(f"epoch {self.current_epoch}: {table.mean().item():.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(MatchGrader(), datamodule=EditOrder())


if __name__ == "__main__":
    main()
