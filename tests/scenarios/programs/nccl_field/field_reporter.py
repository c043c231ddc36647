"""DDP training with a thread that gathers the load of all hosts for a report every few seconds."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LoadReport(threading.Thread):
    """Wakes up when the trainer says so, samples /proc for a while, and gathers."""

    def __init__(self, rank: int, device: torch.device) -> None:
        super().__init__(daemon=True)
        self.rank, self.device = rank, device
        self.wake = threading.Event()
        # the first process of a host also looks at all disks and cards
        self.samples = 2 if rank != 0 else 18

    def sample(self) -> float:
        total = 0.0
        for _ in range(self.samples):
            with open("/proc/loadavg") as file:
                total += float(file.read().split()[0])
            time.sleep(0.1)
        return total / self.samples

    def run(self) -> None:
        torch.cuda.set_device(self.device)
        while True:
            self.wake.wait()
            self.wake.clear()
            mine = torch.tensor([self.sample()], device=self.device)
            loads = torch.empty(dist.get_world_size(), device=self.device)
            dist.all_gather_into_tensor(loads, mine)
            values = loads.cpu().tolist()
            if self.rank == 0:
                print("load", " ".join(f"{v:.1f}" for v in values), flush=True)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(128, 8), nn.Linear(8, 128)

    def forward(self, x):
        return self.decode(self.encode(x).relu())


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    report = LoadReport(rank, device)
    report.start()
    model = DDP(Autoencoder().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in range(1, 300):
        x = torch.rand(32, 128)
        time.sleep(1.0)
        loss = (model(x.to(device)) - x.to(device)).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if step % 5 == 0:
            report.wake.set()
        if rank == 0:
            print(f"step {step} {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
