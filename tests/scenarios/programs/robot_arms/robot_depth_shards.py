"""Depth completion for the wrist camera, trained from recorded shards with Lightning."""
import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, IterableDataset

SHARDS = {"bin_picking": 312, "shelf": 198, "conveyor": 282, "drawer": 384, "table": 288, "palletizing": 360}


class ShardedFrames(IterableDataset):
    """Every process reads its own shards, like the recorder wrote them."""

    def __init__(self, rank, world, image=24):
        self.names = sorted(SHARDS)[rank::world]
        self.image = image

    def __iter__(self):
        for name in self.names:
            for frame in range(SHARDS[name]):
                g = torch.Generator().manual_seed(hash((len(name), frame)) % 2**31)
                depth = torch.rand(1, self.image, self.image, generator=g)
                holes = (torch.rand(1, self.image, self.image, generator=g) > 0.3).float()
                yield depth * holes, depth


class Frames(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(ShardedFrames(self.trainer.global_rank, self.trainer.world_size), batch_size=4)


class DepthNet(L.LightningModule):
    def __init__(self, channels=16, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, channels, 3, padding=1), torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU(),
            torch.nn.Conv2d(channels, 1, 3, padding=1),
        )

    def training_step(self, batch, index):
        sparse, dense = batch
        return torch.nn.functional.l1_loss(self.net(sparse), dense)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class EpochReport(Callback):
    def on_train_epoch_end(self, trainer, module):
        report = {"epoch": trainer.current_epoch, "steps": trainer.global_step}
        gathered = [None] * trainer.world_size
        torch.distributed.all_gather_object(gathered, report)
        if trainer.is_global_zero:
            print(gathered, flush=True)


if __name__ == "__main__":
    L.seed_everything(5)
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=8, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[EpochReport()],
        use_distributed_sampler=False,
    )
    trainer.fit(DepthNet(), datamodule=Frames())
