"""Hydrant pressure model: training on equal shards, evaluation over the hydrants of each brigade."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

BRIGADES = [("harbour", 1180), ("old town", 1012), ("hills", 1204)]


@dataclass
class Config:
    batch: int = 16
    steps_per_epoch: int = 300
    epochs: int = 8
    lr: float = 2e-3


class Hydrants(Dataset):
    def __init__(self, seed, count):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 18, generator=g)
        self.y = (self.x[:, :5] ** 2).sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Validator:
    def __init__(self, dataset, batch):
        self.loader = DataLoader(dataset, batch_size=batch, num_workers=0)

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        worst = torch.zeros(1)
        for x, y in self.loader:
            error = (model(x) - y).abs().max().reshape(1)
            dist.all_reduce(error, op=dist.ReduceOp.MAX)
            worst = torch.maximum(worst, error)
        model.train()
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, (BRIGADES[dist.get_rank()][0], len(self.loader)))
        return worst.item(), table


class Trainer:
    def __init__(self, config):
        self.config = config
        self.rank = dist.get_rank()
        name, count = BRIGADES[self.rank]
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.model = DDP(self.net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.train_data = Hydrants(self.rank, config.batch * config.steps_per_epoch)
        self.validate = Validator(Hydrants(50 + self.rank, count), config.batch)

    def fit(self):
        for epoch in range(self.config.epochs):
            for x, y in DataLoader(self.train_data, batch_size=self.config.batch, shuffle=True):
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(f"[{BRIGADES[self.rank][0]}] epoch {epoch} mse {loss.item():.3f}", flush=True)
            if epoch % 2 == 1:
                worst, table = self.validate(self.net)
                print(f"[{BRIGADES[self.rank][0]}] worst error {worst:.2f} over {table}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(Config()).fit()
    dist.destroy_process_group()
