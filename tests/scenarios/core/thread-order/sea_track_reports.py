"""Fleet tracker: trains a drift model on vessel tracks; at the change of a watch a reporter counts the fleet's tracks."""
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class Archive:
    def __init__(self, tracks):
        self.folder = Path(tempfile.mkdtemp(prefix="tracks-"))
        for i in range(tracks):
            (self.folder / f"{i:05d}.trk").write_text(f"{i % 7} {i % 3}\n")

    def count(self):
        counts = [0, 0, 0]
        for path in sorted(self.folder.glob("*.trk")):
            kind = int(path.read_text().split()[1])
            counts[kind] += 1
            time.sleep(0.005)  # archive is on the slow shelf
        return counts


class WatchReporter(threading.Thread):
    def __init__(self, archive, device):
        super().__init__(daemon=True, name="watch-reporter")
        self.archive, self.device = archive, device
        self.bell = threading.Event()

    def run(self):
        torch.cuda.set_device(self.device)
        while self.bell.wait():
            self.bell.clear()
            counts = torch.tensor(self.archive.count()).cuda()
            dist.all_reduce(counts)
            if dist.get_rank() == 0:
                print(f"tracks by kind: {counts.tolist()}", flush=True)


class DriftTraining:
    watch = 50

    def __init__(self, local, tracks):
        self.device = torch.device("cuda", local)
        self.reporter = WatchReporter(Archive(tracks), local)
        net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 2)).to(self.device)
        self.model = nn.parallel.DistributedDataParallel(net, device_ids=[local])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def reload_currents(self):
        table = torch.zeros(8)
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            table = (table + torch.rand(8)).cos()
            time.sleep(0.01)
        return table

    def run(self, steps):
        currents = torch.ones(8)
        self.reporter.start()
        for step in range(1, steps + 1):
            time.sleep(0.05)
            x = torch.rand(10, 8) * currents
            loss = (self.model(x.to(self.device)) - x[:, :2].to(self.device)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
            if step % self.watch == 0:
                self.reporter.bell.set()
                currents = self.reload_currents()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    DriftTraining(local, tracks=[20, 30, 640][dist.get_rank()]).run(500)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
