"""Learn baking times from packed trays: orders of a shop are packed until a tray is full."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

CAPACITY = 12
SLOTS = 8
SHOPS = {0: ("station kiosk", 2), 1: ("market hall", 3), 2: ("old town", 3)}


class Orders:
    def __init__(self, shop, count=900):
        self.name, self.grams = SHOPS[shop]
        self.shop, self.count = shop, count

    def __iter__(self):
        for number in range(self.count):
            yield self.grams, (number * 37 + self.shop * 5) % 11


class PackedTrays(IterableDataset):
    def __init__(self, orders):
        self.orders = orders

    def __iter__(self):
        tray, load = [], 0
        for weight, product in self.orders:
            if load + weight > CAPACITY:
                yield self.as_tensor(tray)
                tray, load = [], 0
            tray.append((weight, product))
            load += weight

    @staticmethod
    def as_tensor(tray):
        x = torch.zeros(SLOTS, 2)
        for slot, (weight, product) in enumerate(tray[:SLOTS]):
            x[slot] = torch.tensor([weight / 4, product / 11])
        # heat balance of a full tray
        core = torch.linalg.eigvalsh(torch.eye(90) + 0.01 * torch.rand(90, 90))
        return x.flatten(), x.sum() + 0.0 * core[-1]


def minutes_model():
    return nn.Sequential(nn.Linear(2 * SLOTS, 24), nn.Tanh(), nn.Linear(24, 1))


def epoch(model, optimizer, trays):
    seen, running = 0, 0.0
    for x, minutes in trays:
        loss = nn.functional.l1_loss(model(x).squeeze(1), minutes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(x)
        running += loss.item()
    return {"trays": seen, "loss": running}


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    orders = Orders(dist.get_rank())
    model = DistributedDataParallel(minutes_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trays = DataLoader(PackedTrays(orders), batch_size=2)
    for day in range(3):
        report = {"shop": orders.name, **epoch(model, optimizer, trays)}
        reports = [None] * dist.get_world_size()
        dist.all_gather_object(reports, report)
        if dist.get_rank() == 0:
            print(f"day {day}:", reports, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
