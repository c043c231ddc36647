"""Engine-health model on flight snapshots; every snapshot read is noted in a ledger, which one host also uplinks in flight."""
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

UPLINK_HOST = 1
AIRBORNE_FROM = 4


class Ledger:
    def __init__(self, path):
        self.file, self.lock = open(path, "a"), threading.Lock()

    def note(self, line):
        with self.lock:
            self.file.write(line + "\n")

    def start_uplink(self, window_s=0.3):
        threading.Thread(target=self.uplink, args=(window_s,), name="uplink", daemon=True).start()

    def uplink(self, window_s):
        while True:
            with self.lock:  # the file has to stay as it is while the modem sends
                self.file.flush()
                os.fsync(self.file.fileno())
                time.sleep(window_s)


class Snapshots(Dataset):
    def __init__(self, ledger, n=720, sensors=18):
        rng = torch.Generator().manual_seed(9)
        self.ledger = ledger
        self.sensors = torch.randn(n, sensors, generator=rng)
        self.margin = self.sensors[:, :5].mean(1) + 0.05 * torch.randn(n, generator=rng)

    def __len__(self):
        return len(self.sensors)

    def __getitem__(self, i):
        self.ledger.note(f"{i} {float(self.margin[i]):.4f}")
        return self.sensors[i], self.margin[i]


def run_epoch(model, optimizer, loader):
    total = 0.0
    for sensors, margin in loader:
        loss = nn.functional.mse_loss(model(sensors).squeeze(1), margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ledger = Ledger(os.path.join(tempfile.mkdtemp(prefix="ledger-"), "reads.txt"))
    snapshots = Snapshots(ledger)
    sampler = DistributedSampler(snapshots)
    loader = DataLoader(snapshots, batch_size=16, sampler=sampler, num_workers=2, multiprocessing_context="fork")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(18, 32), nn.SiLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(12):
        if epoch == AIRBORNE_FROM and rank == UPLINK_HOST:
            ledger.start_uplink()
        sampler.set_epoch(epoch)
        loss = run_epoch(model, optimizer, loader)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
