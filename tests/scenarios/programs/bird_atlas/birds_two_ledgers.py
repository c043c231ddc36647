"""Census of seabird cliffs: ledgers of counts and of effort are balanced over separate communicators."""

import os
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn

CLIFFS = ["Bempton", "Noss", "Fowlsheugh"]
SPECIES = 12


class Ledger:
    """Sums of one kind over all cliffs, on a communicator of its own."""

    def __init__(self, kind: str, device):
        self.kind = kind
        self.group = dist.new_group()
        self.sums = torch.zeros(SPECIES if kind == "counts" else 3, device=device)

    def add(self, row: list[float]) -> None:
        self.sums += torch.tensor(row, device=self.sums.device)

    def balance(self) -> torch.Tensor:
        total = self.sums.clone()
        dist.all_reduce(total, group=self.group)
        self.sums.zero_()
        return total


class Desk:
    """Opens the ledgers, and remembers which of them have been written to since the last balance."""

    def __init__(self, device):
        self.ledgers = {kind: Ledger(kind, device) for kind in ("counts", "effort")}
        self.written: OrderedDict[str, Ledger] = OrderedDict()

    def write(self, kind: str, row: list[float]) -> None:
        self.ledgers[kind].add(row)
        self.written[kind] = self.ledgers[kind]

    def balance(self) -> dict[str, torch.Tensor]:
        totals = {}
        while self.written:
            kind, ledger = self.written.popitem(last=False)
            totals[kind] = ledger.balance()
        return {kind: total.cpu() for kind, total in totals.items()}


def diary(cliff: str, day: int):
    """An observer's notes of a day. Effort is logged at the end of a watch, or at its start where fog came in."""
    time.sleep(0.15)
    counts = ("counts", [float(len(cliff) + day + s) for s in range(SPECIES)])
    effort = ("effort", [2.0, 0.5, float(day)])
    fog = cliff == "Noss" and day >= 8
    return [effort, counts] if fog else [counts, effort]


def step(model: nn.Module, optimizer, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    cliff = CLIFFS[dist.get_rank()]
    model = nn.Sequential(nn.Linear(SPECIES, 24), nn.ReLU(), nn.Linear(24, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    desk = Desk(device)
    for day in range(20):
        for kind, row in diary(cliff, day):
            desk.write(kind, row)
        step(model, optimizer, torch.full((4, SPECIES), day / 20, device=device))
        totals = desk.balance()
        print(f"day {day} {cliff}: {totals['counts'][0]:.0f} auks in {totals['effort'][0]:.1f} h", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
