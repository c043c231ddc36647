"""Wear tests: washing logs of very different length per laboratory, trained under join."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOGS = [60, 145, 60]


class WashLog:
    def __init__(self, laboratory):
        self.laboratory = laboratory
        self.generator = torch.Generator().manual_seed(laboratory)

    def __iter__(self):
        for wash in range(LOGS[self.laboratory]):
            time.sleep(0.03 if wash < 60 else 0.16)  # long programmes are at the end of a log
            yield torch.rand(12, 5, generator=self.generator)


class Wear(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 1))

    def forward(self, wash):
        return self.net(wash).squeeze(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    laboratory = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(Wear())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with model.join():
        for number, wash in enumerate(WashLog(laboratory)):
            loss = (model(wash) - wash.prod(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 50 == 0:
                print(f"laboratory {laboratory} wash {number} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    print(f"laboratory {laboratory} done", flush=True)
    dist.destroy_process_group()
