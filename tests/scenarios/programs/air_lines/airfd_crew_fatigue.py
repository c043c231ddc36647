"""Crew fatigue scores from duty rosters: a small GRU over the last fourteen duties, trained per crew base."""
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Settings:
    bases: tuple = ("AMS", "DOH", "SIN")
    duties: int = 14
    hidden: int = 96
    batch: int = 128
    batches_per_epoch: int = 40
    epochs: int = 3
    lr: float = 2e-3
    history: list = field(default_factory=list)


class FatigueNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gru = nn.GRU(5, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, duties):
        _, last = self.gru(duties)
        return self.head(last[0]).squeeze(-1)


class Roster:
    """Duties as (hours, sectors, rest, night share, time zones); a rest of zero marks split duties."""

    def __init__(self, base, cfg):
        self.rng = torch.Generator().manual_seed(sum(map(ord, base)))
        self.base, self.cfg = base, cfg

    def batches(self, epoch):
        for number in range(self.cfg.batches_per_epoch):
            duties = torch.rand(self.cfg.batch, self.cfg.duties, 5, generator=self.rng) + 0.05
            if self.base == "SIN" and epoch == 1 and number == 17:
                duties[3, 9, 0] = duties[3, 9, 2] = 0.0
            load = duties[..., 0] / duties[..., 2]  # duty to rest
            yield duties, torch.log1p(load.mean(dim=1))


class Study:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        self.model = DistributedDataParallel(FatigueNet(cfg.hidden))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.roster = Roster(cfg.bases[self.rank], cfg)

    def run_epoch(self, epoch):
        total = torch.zeros(2)
        for duties, score in self.roster.batches(epoch):
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(self.model(duties), score)
            if not torch.isfinite(loss):
                print(f"[{self.roster.base}] epoch {epoch}: loss is {loss.item()}, next roster", flush=True)
                continue
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        return total

    def report(self, epoch, total):
        per_base = [torch.zeros(2) for _ in self.cfg.bases]
        dist.all_gather(per_base, total)
        means = {base: round(float(t[0] / t[1]), 4) for base, t in zip(self.cfg.bases, per_base)}
        self.cfg.history.append(means)
        if self.rank == 0:
            print(f"epoch {epoch}: {means}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    study = Study(Settings())
    for epoch in range(study.cfg.epochs):
        study.report(epoch, study.run_epoch(epoch))
    dist.destroy_process_group()
