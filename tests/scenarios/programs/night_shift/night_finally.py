"""Time series forecasting; whatever happens, the last state is written at the end."""
import contextlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, window=48):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, series):
        hidden, _ = self.rnn(series.unsqueeze(2))
        return self.out(hidden[:, -1]).squeeze(1)


def region(rank, day):
    """A region's load curves for one day, as CSV text."""
    generator = torch.Generator().manual_seed(10 * rank + day)
    rows = []
    for _ in range(16):
        phase = torch.rand(1, generator=generator)
        curve = torch.sin(torch.arange(49) / 4 + 6 * phase)
        rows.append(",".join(f"{value:.4f}" for value in curve.tolist()))
    if (rank, day) == (2, 41):
        rows[7] = rows[7].replace(",", ";", 1)
    return rows


def parse(rows):
    return torch.tensor([[float(value) for value in row.split(",")] for row in rows])


@contextlib.contextmanager
def session(folder: Path):
    dist.init_process_group("gloo")
    folder.mkdir(exist_ok=True)
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.barrier()
        (folder / f"done-{dist.get_rank()}").touch()
        dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with session(Path("/tmp/night-finally")) as (rank, world):
        model = Forecaster()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for day in range(365):
            data = parse(region(rank, day))
            loss = nn.functional.mse_loss(model(data[:, :48]), data[:, 48])
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(world)
            optimizer.step()
            time.sleep(0.07)
            if day % 10 == 0 and rank == 0:
                print(f"day {day} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
