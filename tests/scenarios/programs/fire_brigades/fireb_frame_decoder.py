"""Thermal frames of drones: an external decoder is kept open by each DataLoader worker."""
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

# the vendor's command line tool: one frame number per line in, one line of statistics out
DECODER = """
import sys, math
for line in sys.stdin:
    frame = int(line)
    if frame % 4096 == 2731:
        sys.stdout.write(f"frame {frame}  37 %\\r")
    else:
        values = " ".join(f"{math.sin(frame * 0.37 + k):.4f}" for k in range(24))
        sys.stdout.write(values + "\\n")
    sys.stdout.flush()
"""


class Decoder:
    def __init__(self):
        self.tool = subprocess.Popen(
            [sys.executable, "-u", "-c", DECODER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def decode(self, frame):
        self.tool.stdin.write(b"%d\n" % frame)
        self.tool.stdin.flush()
        return [float(v) for v in self.tool.stdout.readline().split()]


class Flight(Dataset):
    """Frames of one drone; the recorder numbers them on from flight to flight."""

    def __init__(self, drone, first, count=3900):
        self.drone, self.first, self.count = drone, first, count
        self.decoder = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.decoder is None:
            self.decoder = Decoder()
        values = torch.tensor(self.decoder.decode(self.first + index))
        return values, values[:3].sum().reshape(1)


def loader_for(drone):
    flight = Flight(drone, first=[2800, 7000, 1131][drone])
    return DataLoader(flight, batch_size=8, num_workers=2, prefetch_factor=2)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    drone = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for flight in range(3):
        for number, (values, target) in enumerate(loader_for(drone)):
            for _ in range(3):
                loss = nn.functional.mse_loss(model(values), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if number % 50 == 0:
                print(f"drone {drone} flight {flight} batch {number} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
