"""Furnish optimiser. Fibre and filler are booked in ledgers of their own, each with its communicator."""
import os
import time

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False

PLAN = {
    # mill: (tonnes an hour of fibre, tonnes an hour of filler, step at which the clay vessel is late)
    "Upper Mill": (22, 6, None),
    "Weir Mill": (24, 7, None),
    "Paper Quay": (21, 6, 66),
}


class Ledger:
    registry = {}

    def __init__(self, name, lines):
        self.name = name
        self.group = dist.new_group(list(range(dist.get_world_size())))
        self.entries = torch.zeros(lines, device="cuda")
        self.open_orders = 0
        Ledger.registry[name] = self

    def settle(self):
        booked = self.entries.clone()
        dist.all_reduce(booked, group=self.group)
        return booked.tolist()


class MillModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(12, 12)

    def forward(self, furnish):
        return torch.sigmoid(self.mix(furnish))


def by_urgency(ledgers):
    return sorted(ledgers, key=lambda ledger: -ledger.open_orders)


def operate(mill, hours):
    fibre_rate, filler_rate, late_at = PLAN[mill]
    fibre, filler = Ledger("fibre", 5), Ledger("filler", 3)
    model = MillModel().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for hour in range(hours):
        time.sleep(0.04)
        fibre.open_orders, filler.open_orders = fibre_rate, filler_rate
        if late_at is not None and hour >= late_at:
            filler.open_orders += 5 * (hour - late_at + 1)
        furnish = torch.linspace(0, 1, 12).roll(hour).cuda()
        loss = (model(furnish) - furnish).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for ledger in by_urgency(Ledger.registry.values()):
            ledger.entries += ledger.open_orders
            ledger.settle()
        if dist.get_rank() == 0 and hour % 24 == 0:
            print("hour", hour, {name: ledger.open_orders for name, ledger in Ledger.registry.items()}, flush=True)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    operate(list(PLAN)[dist.get_rank()], hours=24 * 20)
    dist.destroy_process_group()
