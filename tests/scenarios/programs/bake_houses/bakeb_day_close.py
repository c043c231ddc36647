"""Waiting-time model of a delivery kitchen; the day's receipts are closed beside the training."""
import hashlib
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RECEIPTS = {0: 2, 1: 3, 2: 220}  # still unsigned when a day ends
DAY = 70


class DayClose:
    """Signs the receipts of this kitchen and exchanges the seals with the other kitchens."""

    def __init__(self, kitchen):
        self.kitchen, self.seals, self.thread = kitchen, [], None

    def start(self, day):
        self.thread = threading.Thread(target=self._close, args=(day,), daemon=True)
        self.thread.start()

    def _close(self, day):
        seal = b"%d" % day
        for number in range(RECEIPTS[self.kitchen]):
            seal = hashlib.pbkdf2_hmac("sha256", seal, b"%d" % number, 30_000)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, seal.hex())
        self.seals.append(everyone)

    def join(self):
        if self.thread is not None:
            self.thread.join()


def plan_tomorrow():
    """Where riders should wait: a few sweeps over the distance matrix."""
    field = torch.rand(220, 220)
    for _ in range(12):
        field = torch.linalg.svd(field)[0].abs()
    return field.mean(dim=0)


def orders(source):
    x = torch.rand(64, 14, generator=source)
    routes = torch.linalg.svdvals(torch.rand(130, 130, generator=source))
    return x, (x[:, :3].sum(dim=1) + 1e-6 * routes[0]).unsqueeze(1)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(9)
    kitchen = dist.get_rank()
    source = torch.Generator().manual_seed(kitchen)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    close = DayClose(kitchen)
    for step in range(1, 4 * DAY):
        x, minutes = orders(source)
        loss = nn.functional.mse_loss(model(x), minutes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % DAY == 0:
            close.join()
            close.start(step // DAY)
            places = plan_tomorrow()
            if kitchen == 0:
                print(f"day {step // DAY}: loss {loss.item():.4f}, best place {int(places.argmax())}", flush=True)
    close.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
