"""Transit search in light curves of all lengths; batches hold a fixed number of cadences (accelerate)."""
import random
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    targets: int = 1500
    cadences: int = 6144
    epochs: int = 6
    width: int = 48
    lr: float = 2e-3


class KeplerTargets(Dataset):
    def __init__(self, kic_ids):
        rng = random.Random(17)
        self.ids = list(kic_ids)
        self.lengths = [min(900, int(60 + rng.lognormvariate(4.6, 0.8))) for _ in self.ids]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.ids[i])
        flux = 1e-3 * torch.randn(self.lengths[i], generator=g)
        planet = i % 3 == 0
        if planet:
            flux[i % 29 :: 30] -= 4e-3
        return 200 * flux, int(planet)


class CadenceBudgetSampler(Sampler):
    """Batches of targets whose cadences add up to at most `budget`, for this process' part of the targets."""

    def __init__(self, lengths, budget, rank, world, seed=0):
        self.lengths, self.budget, self.rank, self.world, self.seed = lengths, budget, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(len(self.lengths)))
        random.Random(self.seed).shuffle(order)
        mine = order[self.rank :: self.world]
        random.Random(self.seed + self.epoch).shuffle(mine)
        batch, used = [], 0
        for i in mine:
            if used + self.lengths[i] > self.budget and batch:
                yield batch
                batch, used = [], 0
            batch.append(i)
            used += self.lengths[i]
        yield batch


def collate(items):
    flux, planet = zip(*items)
    return pad_sequence(flux, batch_first=True).unsqueeze(-1), torch.tensor(planet)


class TransitNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(1, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, flux):
        return self.head(self.gru(flux)[0].amax(1))


def main(cfg):
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    data = KeplerTargets(range(757_000, 757_000 + cfg.targets))
    sampler = CadenceBudgetSampler(data.lengths, cfg.cadences, accelerator.process_index, accelerator.num_processes)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    model = TransitNet(cfg.width)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), cfg.lr))
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        losses = []
        for flux, planet in loader:
            loss = nn.functional.cross_entropy(model(flux), planet)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        losses = gather_object(losses)
        accelerator.print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main(Config())
