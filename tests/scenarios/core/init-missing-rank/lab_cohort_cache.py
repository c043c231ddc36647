"""Survival model on a cohort of patients. The first process prepares the cohort, the others read what it wrote."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def rank_of_process():
    return int(os.environ["RANK"])


class Cohort:
    """Covariates, times and events, in one file under the scratch folder."""

    def __init__(self, scratch):
        self.file = Path(scratch, f"cohort-{os.environ['MASTER_PORT']}.pt")

    def prepare(self, patients=400):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(patients, 6, generator=generator)
        time_to_event = torch.exp(-x[:, 0]) * -torch.rand(patients, generator=generator).log()
        event = torch.rand(patients, generator=generator) < 0.7
        partial = self.file.with_suffix(".partial")
        torch.save({"x": x, "time": time_to_event, "event": event}, partial)
        partial.rename(self.file)

    def load(self):
        while not self.file.exists():
            time.sleep(0.2)
        return torch.load(self.file)


def cox_loss(risk, times, event):
    order = times.argsort(descending=True)
    risk, event = risk[order], event[order]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)


class Experiment:
    def __init__(self, scratch):
        self.cohort = Cohort(scratch)
        if rank_of_process() == 0:
            self.setup()
            self.cohort.prepare()
            self.data = self.cohort.load()
        else:
            self.data = self.cohort.load()
            self.setup()

    def setup(self):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def run(self, epochs):
        rank, world = dist.get_rank(), dist.get_world_size()
        rows = slice(rank, None, world)
        for epoch in range(epochs):
            risk = self.model(self.data["x"][rows])[:, 0]
            loss = cox_loss(risk, self.data["time"][rows], self.data["event"][rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if rank == 0:
                print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    Experiment(tempfile.gettempdir()).run(epochs=20)
