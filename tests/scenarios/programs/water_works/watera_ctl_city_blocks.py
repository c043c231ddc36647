"""Energy demand of buildings, by city: cities differ in size, DDP's join takes care of those that are through."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

BLOCKS = {"Ghent": 24, "Basel": 30, "Lyon": 84}


class City:
    def __init__(self, name):
        self.name = name
        self.g = torch.Generator().manual_seed(len(name))

    def __len__(self):
        return BLOCKS[self.name]

    def simulate(self, walls, hours=240):
        """Indoor temperature under a simple RC model; the sum of heating is the label."""
        inside, heat = torch.full((len(walls),), 18.0), torch.zeros(len(walls))
        for hour in range(hours):
            outside = 5 + 5 * torch.sin(torch.tensor(hour * 0.26))
            loss = walls[:, 0] * (inside - outside) * 0.05
            power = (20 - inside).clamp(0, 2) * 0.5
            inside, heat = inside - loss + power, heat + power
        return heat / hours

    def __iter__(self):
        for _ in range(len(self)):
            walls = torch.rand(16, 6, generator=self.g)
            time.sleep(0.2)  # geometry service
            yield walls, self.simulate(walls)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    city = City(list(BLOCKS)[rank])
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    with Join([model]):
        for walls, heat in city:
            loss = nn.functional.mse_loss(model(walls).squeeze(1), heat)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % 12 == 0:
                print(f"{city.name}: {done}/{len(city)} blocks, loss {loss.item():.4f}", flush=True)
    total = torch.tensor([done])
    dist.all_reduce(total)
    print(f"[{rank}] {int(total)} blocks in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
