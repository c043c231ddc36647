"""Two-stage pipeline by hand: a protein-ligand encoder on the first process, the scorer on the second."""

import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pipeline")


@dataclass(frozen=True)
class Plan:
    complexes: int = 16 * 45 + 12
    batch: int = 16
    chunk: int = 4
    residues: int = 60
    width: int = 64
    epochs: int = 2

    @property
    def chunks(self):
        return self.batch // self.chunk


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(21, width)
        self.mix = nn.GRU(width, width, batch_first=True)

    def forward(self, residues):
        return self.mix(torch.relu(self.project(residues)))[0].mean(1)


class FirstStage:
    def __init__(self, plan):
        self.plan, self.model = plan, Encoder(plan.width)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        source = torch.Generator().manual_seed(1)
        self.residues = torch.randn(plan.complexes, plan.residues, 21, generator=source)

    def epoch(self):
        for batch in self.residues.split(self.plan.batch):
            sent = []
            for chunk in batch.split(self.plan.chunk):
                code = self.model(chunk)
                dist.send(code.detach(), dst=1)
                sent.append(code)
            self.optimizer.zero_grad()
            for code in sent:
                gradient = torch.empty_like(code)
                dist.recv(gradient, src=1)
                code.backward(gradient)
            self.optimizer.step()


class SecondStage:
    def __init__(self, plan):
        self.plan, self.model = plan, nn.Sequential(nn.Linear(plan.width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def batch(self):
        codes = []
        for _ in range(self.plan.chunks):
            code = torch.empty(self.plan.chunk, self.plan.width)
            dist.recv(code, src=0)
            codes.append(code.requires_grad_())
        self.optimizer.zero_grad()
        loss = sum((self.model(code) - code.detach().mean(1, keepdim=True)).square().mean() for code in codes)
        loss.backward()
        for code in codes:
            dist.send(code.grad, dst=0)
        self.optimizer.step()
        return loss.item()

    def epoch(self):
        batches = -(-self.plan.complexes // self.plan.batch)
        for number in range(batches):
            loss = self.batch()
            if number % 15 == 0:
                log.info("batch %d of %d: %.4f", number, batches, loss)


def main(plan):
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(13)
    stage = (FirstStage, SecondStage)[dist.get_rank()](plan)
    for epoch in range(plan.epochs):
        stage.epoch()
        log.info("stage %d ended epoch %d", dist.get_rank(), epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Plan())
