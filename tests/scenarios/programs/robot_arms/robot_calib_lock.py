"""Hand-eye calibration refinement; every station keeps its accepted poses in a table on disk."""
import fcntl
import json
import pathlib
import time

import torch
import torch.distributed as dist


class TableLock:
    def __init__(self, path):
        self.path = pathlib.Path(path).with_suffix(".lock")

    def __enter__(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc):
        fcntl.flock(self.file, fcntl.LOCK_UN)
        self.file.close()


class CalibrationTable:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def read(self):
        with TableLock(self.path):
            return json.loads(self.path.read_text()) if self.path.exists() else {}

    def record(self, station, pose, residual):
        with TableLock(self.path):
            table = json.loads(self.path.read_text()) if self.path.exists() else {}
            previous = table.get(station)
            table[station] = {"pose": pose, "residual": residual}
            if previous is not None and residual > 100 * previous["residual"]:
                self.restore(station)
                return
            self.path.write_text(json.dumps(table))

    def restore(self, station):
        """Put the station's last accepted pose back."""
        table = self.read()
        table[station]["restored"] = True
        self.path.write_text(json.dumps(table))


class HandEye(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.twist = torch.nn.Parameter(torch.zeros(6))

    def residual(self, markers, seen):
        w, t = self.twist[:3], self.twist[3:]
        return (markers + torch.linalg.cross(w.expand_as(markers), markers) + t - seen).square().mean()


def observe(station, iteration, g):
    markers = torch.randn(40, 3, generator=g)
    bump = 0.6 if station == 2 and 75 <= iteration < 90 else 0.0  # table was moved
    seen = markers + torch.tensor([0.1, -0.05, 0.2]) + bump
    return markers, seen + 0.02 * torch.randn(40, 3, generator=g)


def main():
    dist.init_process_group("gloo")
    station, world = dist.get_rank(), dist.get_world_size()
    table = CalibrationTable(f"calibration_{station}.json")
    g = torch.Generator().manual_seed(station)
    model = HandEye()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for iteration in range(300):
        markers, seen = observe(station, iteration, g)
        loss = model.residual(markers, seen)
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(model.twist.grad)
        model.twist.grad /= world
        optimizer.step()
        if iteration % 10 == 9:
            table.record(str(station), model.twist.tolist(), loss.item())
        if iteration % 30 == 0 and station == 0:
            print(f"iteration {iteration} residual {loss.item():.5f}", flush=True)
        time.sleep(0.04)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
