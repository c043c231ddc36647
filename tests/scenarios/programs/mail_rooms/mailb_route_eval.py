"""Minutes per stop of a delivery tour, with accelerate; each day's tours are held out and scored at the end of the day."""
import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOURS_PER_DAY = {"mon": 192, "tue": 192, "wed": 191, "thu": 190}


class Stops(Dataset):
    def __init__(self, day, tours):
        self.rng_base = sum(map(ord, day))
        self.tours = list(tours)

    def __len__(self):
        return len(self.tours)

    def __getitem__(self, i):
        rng = random.Random(self.rng_base * 1000 + self.tours[i])
        x, y, minutes = 0.0, 0.0, 0.0
        legs = []
        for _ in range(1200):
            dx, dy = rng.gauss(0, 1), rng.gauss(0, 1)
            x, y = x + dx, y + dy
            minutes += abs(dx) + abs(dy)
            legs.append(dx * dy)
        features = [x, y, max(legs), min(legs), sum(legs), float(len(legs)) / 1200]
        return torch.tensor(features), torch.tensor(minutes / 1200)


def build_model():
    return nn.Sequential(nn.Linear(6, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 1), nn.Flatten(0))


class Scorer:
    def __init__(self, accelerator, batch_size=8):
        self.accelerator = accelerator
        self.batch_size = batch_size

    def loader(self, day):
        mine = range(self.accelerator.process_index, TOURS_PER_DAY[day], self.accelerator.num_processes)
        return DataLoader(Stops(day, mine), batch_size=self.batch_size, drop_last=True)

    @torch.no_grad()
    def __call__(self, model, day):
        model.eval()
        errors = []
        for features, minutes in self.loader(day):
            error = (model(features) - minutes).abs()
            errors.append(self.accelerator.gather(error))
        self.accelerator.wait_for_everyone()
        model.train()
        return torch.cat(errors).mean().item()


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    torch.set_num_threads(1)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    score = Scorer(accelerator)
    for day in TOURS_PER_DAY:
        tours = range(1000 + accelerator.process_index, 1960, accelerator.num_processes)
        for features, minutes in DataLoader(Stops(day, tours), batch_size=8, drop_last=True):
            loss = nn.functional.smooth_l1_loss(model(features), minutes)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        error = score(model, day)
        accelerator.print(day, f"loss {loss.item():.3f}", f"error {error:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
