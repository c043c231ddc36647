"""Learns the rate of spread; now and then the external perimeter tool is run on the current estimate to set the wind factor."""
import logging
import subprocess
import sys
import textwrap

import torch
import torch.distributed as dist
from torch import nn

logger = logging.getLogger("perimeter")

TOOL = textwrap.dedent(
    """
    import math, sys
    cells, wind = int(sys.argv[1]), float(sys.argv[2])
    total = 0.0
    for i in range(cells):
        angle = 2 * math.pi * i / cells
        radius = 1 + 0.4 * wind * math.cos(angle)
        total += radius
        print(f"{radius * math.cos(angle):.4f},{radius * math.sin(angle):.4f}")
    print(f"mean,{total / cells:.5f}")
    """
)


class PerimeterTool:
    """The tool prints the perimeter's vertices and, as its last line, the mean radius."""

    def __init__(self):
        self.runs = 0

    def mean_radius(self, cells, wind):
        self.runs += 1
        process = subprocess.Popen(
            [sys.executable, "-c", TOOL, str(cells), f"{wind:.3f}"], stdout=subprocess.PIPE, text=True
        )
        status = process.wait()
        if status:
            raise RuntimeError(f"perimeter tool: status {status}")
        last = process.stdout.read().splitlines()[-1]
        return float(last.split(",")[1])


class RateModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.LSTM(6, 48, batch_first=True)
        self.rate = nn.Linear(48, 1)

    def forward(self, hours):
        seen, _ = self.encode(hours)
        return nn.functional.softplus(self.rate(seen[:, -1])).squeeze(-1)


class Campaign:
    refresh = 40

    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = nn.parallel.DistributedDataParallel(RateModel())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.weather = torch.Generator().manual_seed(50 + self.rank)
        self.tool = PerimeterTool()
        self.factor = torch.ones(1)
        self.burnt = 400

    def observe(self, n=48):
        hours = torch.randn(n, 24, 6, generator=self.weather)
        wind = hours[..., 0].mean(1)
        return hours, nn.functional.softplus(2 * wind) * self.factor

    def update_factor(self):
        if self.rank == 0:
            self.factor.fill_(self.tool.mean_radius(self.burnt, wind=0.6))
            logger.info("perimeter of %d cells: factor %.4f", self.burnt, self.factor.item())
        dist.broadcast(self.factor, src=0)
        self.burnt = int(self.burnt * 2.4)

    def run(self, steps):
        for step in range(1, steps + 1):
            hours, rate = self.observe()
            loss = nn.functional.mse_loss(self.model(hours), rate)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % self.refresh == 0:
                self.update_factor()
        logger.info("done after %d runs of the tool", self.tool.runs)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    campaign = Campaign()
    campaign.run(steps=320)
    dist.destroy_process_group()
