"""Predicts the bit error rate of downlink passes with accelerate; validates on each station's archived passes."""
import logging
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("pass_quality")


@dataclass
class Settings:
    batch: int = 32
    epochs: int = 5
    train_batches: int = 400
    lr: float = 3e-3
    # archived passes with a complete weather record, per antenna
    archive: tuple = (("GS1", 640), ("GS2", 640), ("GS3", 416))


class PassStream(IterableDataset):
    """Elevation profile, rain rate and transmitter power of a pass; the target is log10(BER)."""

    def __init__(self, antenna, passes, seed):
        self.antenna = antenna
        self.passes = passes
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.passes):
            profile = torch.rand(40, generator=generator).sort().values
            rain = torch.rand(1, generator=generator)
            power = 20 + 3 * torch.randn(1, generator=generator)
            target = -6 + 3 * rain - 0.1 * power + 0.5 * profile.mean()
            yield torch.cat([profile, rain, power / 20]), target


class Workbench:
    def __init__(self, settings):
        self.settings = settings
        self.accelerator = Accelerator(cpu=True)
        index = self.accelerator.process_index
        antenna, archived = settings.archive[index]
        model = nn.Sequential(nn.Linear(42, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        live = PassStream(antenna, settings.train_batches * settings.batch, seed=index)
        self.train_loader = DataLoader(live, batch_size=settings.batch)
        self.archive_loader = DataLoader(PassStream(antenna, archived, seed=90 + index), batch_size=settings.batch)

    def fit(self, epoch):
        self.model.train()
        for features, target in self.train_loader:
            loss = nn.functional.smooth_l1_loss(self.model(features), target)
            self.optimizer.zero_grad()
            self.accelerator.backward(loss)
            self.optimizer.step()
        log.info("epoch %d, loss %.4f", epoch, loss.item())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        net = self.accelerator.unwrap_model(self.model)
        errors = []
        for features, target in self.archive_loader:
            errors.append(self.accelerator.gather((net(features) - target).abs().flatten()))
        return torch.cat(errors).mean().item()

    def run(self):
        for epoch in range(self.settings.epochs):
            self.fit(epoch)
            score = self.validate()
            if self.accelerator.is_main_process:
                log.info("validation error %.4f", score)
        self.accelerator.end_training()


if __name__ == "__main__":
    torch.set_num_threads(1)
    Workbench(Settings()).run()
