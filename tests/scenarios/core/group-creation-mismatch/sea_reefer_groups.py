"""Energy of refrigerated containers: terminals share gradients; those with reefer racks share a plug model besides."""
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

TERMINALS = [
    {"name": "Altenwerder", "boxes": 900, "racks": 14},
    {"name": "Bulk Quay", "boxes": 120, "racks": 0},
    {"name": "Tollerort", "boxes": 640, "racks": 9},
]


class Terminal:
    def __init__(self, rank, device):
        self.info = TERMINALS[rank]
        self.device = device
        self.rng = random.Random(self.info["name"])
        self.energy = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
        self.model = nn.parallel.DistributedDataParallel(self.energy, device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.plugs = None
        self.plug_group = None

    def season(self, month):
        """With the fruit season the racks are switched on, and their plug table is shared from then on."""
        if month == 5 and self.info["racks"]:
            members = [r for r, t in enumerate(TERMINALS) if t["racks"]]
            self.plug_group = dist.new_group(members)
            self.plugs = torch.zeros(24, device=self.device)

    def hour(self):
        rows = []
        for _ in range(8):
            time.sleep(0.006)
            rows.append([self.rng.random() for _ in range(7)])
        x = torch.tensor(rows).to(self.device)
        loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.plugs is not None:
            dist.all_reduce(self.plugs, group=self.plug_group)
        return loss.item()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    terminal = Terminal(dist.get_rank(), device)
    for month in range(1, 13):
        terminal.season(month)
        values = [terminal.hour() for _ in range(12)]
        print(f"{terminal.info['name']} month {month}: {values[-1]:.3f}", flush=True)
    everybody = dist.new_group(list(range(dist.get_world_size())))
    dist.barrier(group=everybody)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
