"""Lightning: rental bikes per hour. Weather comes from a small process that all loader workers ask."""

import multiprocessing as mp

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS = 600


def weather_service(questions, answers):
    """Answers with temperature and rain, hour by hour, as long as the station's file goes."""
    for _ in range(150):
        hour = questions.get()
        answers.put((hour, 10 + hour % 15, hour % 7 == 0))


class Rentals(Dataset):
    def __init__(self, questions=None, answers=None):
        self.questions, self.answers = questions, answers

    def __len__(self):
        return HOURS

    def __getitem__(self, hour):
        temperature, rain = 12.0, False
        if self.questions is not None:
            self.questions.put(hour)
            _, temperature, rain = self.answers.get()
        x = torch.tensor([hour % 24 / 24, temperature / 30, float(rain)])
        return x, x.sum(0, keepdim=True)


class Demand(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))

    def setup(self, stage):
        self.rentals = Rentals()
        if self.global_rank == 2:  # the only host with a weather station
            fork = mp.get_context("fork")
            questions, answers = fork.Queue(), fork.Queue()
            fork.Process(target=weather_service, args=(questions, answers), daemon=True).start()
            self.rentals = Rentals(questions, answers)

    def train_dataloader(self):
        return DataLoader(self.rentals, 10, num_workers=1, multiprocessing_context="fork", persistent_workers=True)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


if __name__ == "__main__":
    L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(Demand())
