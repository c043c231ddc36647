"""Lashing force estimates with accelerate. Every round ends with a comparison on the logged voyages of each ship."""
import random
import time
from functools import partial

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.enabled = False

SHIPS = {"Ever Lotus": 41, "Mare Tyrrhenum": 58, "Nordic Dawn": 57}  # logged storms


def motions(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 9, generator=generator)  # roll, pitch, heave, ...
    return TensorDataset(x, (x[:, :3] * 40).sum(1, keepdim=True))


def paced(rows, seconds):
    time.sleep(seconds)
    return torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows])


class Rounds:
    def __init__(self, accelerator, seed=5):
        self.accelerator = accelerator
        net = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
        train = DataLoader(motions(600, seed), batch_size=4, collate_fn=partial(paced, seconds=0.05), drop_last=True)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        self.net, self.optimizer, self.train = accelerator.prepare(net, optimizer, train)
        ship, storms = list(SHIPS.items())[accelerator.process_index]
        self.ship = ship
        self.logged = DataLoader(motions(storms, seed + 1), batch_size=8, drop_last=True)

    def fit(self):
        for x, force in self.train:
            loss = nn.functional.mse_loss(self.net(x), force)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss.item()

    @torch.no_grad()
    def compare(self):
        net = self.accelerator.unwrap_model(self.net)
        tables = []
        for x, force in self.logged:
            x, force = x.to(self.accelerator.device), force.to(self.accelerator.device)
            ratio = torch.cat([net(x), force], dim=0)
            tables.append(self.accelerator.gather(ratio).cpu())
        return len(tables)


def main():
    random.seed(0)
    accelerator = Accelerator()
    rounds = Rounds(accelerator)
    for number in range(6):
        rounds.fit()
        compared = rounds.compare()
        accelerator.print(f"round {number}: {compared} tables of logged storms")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
