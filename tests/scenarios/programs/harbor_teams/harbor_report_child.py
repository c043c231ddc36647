"""Footfall of shopping centres. Every few rounds a report is rendered by the reporting team's command-line tool."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROUND = 130
# The tool prints one line per centre and hour, and a summary.
RENDER = """
import json, sys
rows = json.load(open(sys.argv[1]))
for row in rows:
    for hour in range(24):
        print(f"{row['centre']:>6}  {hour:02d}:00  {row['error'] * (1 + hour / 24):10.4f}  {'#' * int(row['error'] * 20)}")
print(f"{len(rows)} centres")
"""


class Centres:
    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(20 + rank)

    def batch(self, size: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
        week = torch.randn(size, 28, generator=self.generator)
        return week, week[:, -7:].abs().mean(dim=1)


class Report:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="footfall-"))
        self.rows: list[dict[str, float]] = []

    def add(self, centre: int, error: float) -> None:
        self.rows.append({"centre": centre, "error": round(error, 4)})

    def render(self, number: int) -> None:
        """Renders the rows so far: some hundred lines at first, more each time."""
        source = self.folder / "rows.json"
        source.write_text(json.dumps(self.rows))
        tool = subprocess.Popen([sys.executable, "-c", RENDER, str(source)], stdout=subprocess.PIPE, text=True)
        if tool.wait() != 0:
            raise RuntimeError(f"report {number} failed")
        (self.folder / f"report-{number}.txt").write_text(tool.stdout.read())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(28, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    centres, report = Centres(rank), Report() if rank == 0 else None
    for number in range(200):
        for step in range(ROUND):
            week, visitors = centres.batch()
            loss = nn.functional.l1_loss(model(week).squeeze(-1), visitors)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if report is not None and step % 4 == 0:
                report.add(step, loss.item())
        if report is not None:
            report.render(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
