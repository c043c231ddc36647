"""River levels from rain gauges, with the optimizer's state spread over the ranks and a guard against storms."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class SpikeGuard:
    """Remembers how large losses are, and says whether this one is out of the ordinary."""

    def __init__(self, factor=8.0, memory=0.9):
        self.factor = factor
        self.memory = memory
        self.usual = None

    def ordinary(self, loss):
        if self.usual is None:
            self.usual = loss
        if loss > self.factor * self.usual:
            return False
        self.usual = self.memory * self.usual + (1 - self.memory) * loss
        return True


class Gauges:
    def __init__(self, basin):
        self.basin = basin
        self.generator = torch.Generator().manual_seed(40 + basin)

    def hour(self, number):
        rain = torch.rand(24, 9, generator=self.generator)
        level = rain.mean(1, keepdim=True) + 0.5
        if self.basin == 2 and number == 45:
            level = level * 30  # the flood of that year
        return rain, level


def build():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    basin = dist.get_rank()
    model = DDP(build())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    guard, gauges, left_out = SpikeGuard(), Gauges(basin), 0
    for hour in range(300):
        rain, level = gauges.hour(hour)
        loss = nn.functional.mse_loss(model(rain), level)
        loss.backward()
        if guard.ordinary(max(loss.item(), 0.05)):
            optimizer.step()
        else:
            left_out += 1
            print(f"basin {basin}: hour {hour} left out, loss {loss.item():.1f}", flush=True)
        optimizer.zero_grad()
        time.sleep(0.05)
        if basin == 0 and hour % 20 == 0:
            print(f"hour {hour}: {loss.item():.4f}", flush=True)
    print(f"basin {basin}: {left_out} hours left out", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
