"""Interline fares: carriers of an alliance share their rate embeddings, code shares come in on Fridays."""
import time

import torch
import torch.distributed as dist
from torch import nn

CARRIERS = ["northair", "skyline", "coastal"]  # one process each
AGREEMENTS = {
    "alliance": ("northair", "skyline"),
    "codeshare": ("northair", "skyline", "coastal"),
}


class Agreements:
    """Groups of carriers, made when they are first needed and by the carriers concerned."""

    def __init__(self, me):
        self.me = me
        self._groups = {}

    def applies(self, name):
        return self.me in AGREEMENTS[name]

    def group(self, name):
        if name not in self._groups:
            members = [CARRIERS.index(c) for c in AGREEMENTS[name]]
            self._groups[name] = dist.new_group(members, use_local_synchronization=True)
        return self._groups[name]

    def mean(self, name, tensor):
        dist.all_reduce(tensor, group=self.group(name))
        return tensor / len(AGREEMENTS[name])


class FareModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = nn.Parameter(torch.zeros(14))
        self.scale = nn.Linear(14, 1)

    def forward(self, query):
        return self.scale(query * (1 + self.rates)).squeeze(1)


def trading_day(model, optimizer, agreements, g, weekday, queries=16):
    for _ in range(queries):
        query = torch.rand(32, 14, generator=g)
        time.sleep(0.04)
        loss = nn.functional.smooth_l1_loss(model(query), query.sum(1))
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(model.scale.weight.grad)
        optimizer.step()
    with torch.no_grad():
        if agreements.applies("alliance"):
            model.rates.copy_(agreements.mean("alliance", model.rates.clone()))
        if weekday == "Fri":
            model.rates.copy_(agreements.mean("codeshare", model.rates.clone()))
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    carrier = CARRIERS[dist.get_rank()]
    torch.manual_seed(3)
    model = FareModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    agreements = Agreements(carrier)
    g = torch.Generator().manual_seed(len(carrier))
    for week in range(3):
        for weekday in ("Mon", "Tue", "Wed", "Thu", "Fri"):
            loss = trading_day(model, optimizer, agreements, g, weekday)
            print(f"week {week} {weekday} {carrier}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
