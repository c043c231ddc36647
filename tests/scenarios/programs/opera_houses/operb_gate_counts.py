"""Visitor flow: forecasts the next quarter of an hour from the counters at the museum's gates.

The counters' dumps are decoded by the vendor's tool, which runs beside each loader worker and takes one day a line.
"""
import logging
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

GATES = ("north", "garden", "river")
QUARTERS = 64

VENDOR_TOOL = r"""
import sys
ENDING = {2: "\n", 3: "\r"}
def firmware(gate, day):
    return 3 if gate == "north" and day >= 150 else 2
for line in sys.stdin:
    gate, day = line.split()
    day = int(day)
    counts = [(day * 31 + q * q * 7 + len(gate)) % 180 for q in range(65)]
    sys.stdout.write(",".join(map(str, counts)) + ENDING[firmware(gate, day)])
    sys.stdout.flush()
"""


class Decoder:
    def __init__(self):
        self.tool = subprocess.Popen([sys.executable, "-c", VENDOR_TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def day(self, gate, day):
        self.tool.stdin.write(f"{gate} {day}\n".encode())
        self.tool.stdin.flush()
        return [int(count) for count in self.tool.stdout.readline().decode().split(",")]


class GateDays(Dataset):
    def __init__(self, gate, days=320):
        self.gate, self.days = gate, days
        self.decoder = None

    def __len__(self):
        return self.days

    def __getitem__(self, day):
        if self.decoder is None:
            self.decoder = Decoder()
        counts = torch.tensor(self.decoder.day(self.gate, day), dtype=torch.float32) / 100
        for _ in range(40):  # weather and holidays, smoothed over the day
            smooth = torch.fft.irfft(torch.fft.rfft(counts[:QUARTERS]) * 0.999, n=QUARTERS)
            torch.linalg.svdvals(torch.outer(smooth, smooth))
        return smooth, counts[QUARTERS:]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(1, 32, batch_first=True)
        self.read = nn.Linear(32, 1)

    def forward(self, series):
        states, _ = self.cell(series.unsqueeze(-1))
        return self.read(states[:, -1])


def train(gate, epochs=2):
    loader = DataLoader(GateDays(gate), batch_size=4, num_workers=1)
    torch.manual_seed(2)
    model = DistributedDataParallel(Forecast())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        for step, (days, counts) in enumerate(loader):
            loss = nn.functional.mse_loss(model(days), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                logging.info("%s gate, epoch %d step %d: %.4f", gate, epoch, step, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    train(GATES[int(os.environ["RANK"])])
    dist.destroy_process_group()
