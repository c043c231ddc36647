"""Frost risk of the coming nights; the weather of each valley is extracted once and cached."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

EXTRACT = """
import os, sys, time
folder, nights, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
lock = os.path.join(folder, ".lock")
os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
with open(os.path.join(folder, "nights.csv"), "a") as out:
    for night in range(nights):
        time.sleep(pace)
        out.write(f"{night},{(night * 7 % 19) - 6},{night * 3 % 11}\\n")
        out.flush()
os.remove(lock)
"""
VALLEYS = ["aare", "rhone", "ticino"]
PACE = {"aare": 0.002, "rhone": 0.002, "ticino": 0.03}


class FolderLock:
    def __init__(self, folder):
        self.path = pathlib.Path(folder, ".lock")

    def __enter__(self):
        while True:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
                return self
            except FileExistsError:
                time.sleep(0.25)

    def __exit__(self, *exc):
        self.path.unlink()


class WeatherCache:
    def __init__(self, root, valley):
        self.valley, self.folder = valley, pathlib.Path(root, valley)
        self.folder.mkdir(parents=True)

    def extract(self, nights, patience=4.0):
        command = [sys.executable, "-c", EXTRACT, str(self.folder), str(nights), str(PACE[self.valley])]
        try:
            subprocess.run(command, timeout=patience, check=True)
        except subprocess.TimeoutExpired:
            print(f"{self.valley}: goes on with the nights it has", flush=True)

    def read(self):
        with FolderLock(self.folder):
            rows = (self.folder / "nights.csv").read_text().split()
        return torch.tensor([[float(v) for v in row.split(",")] for row in rows])


def fit(weights, table, steps):
    x, y = table[:, 1:] / 10, (table[:, 1:2] < 0).float()
    for _ in range(steps):
        p = torch.sigmoid(x @ weights)
        grad = x.t() @ (p - y) / len(x)
        dist.all_reduce(grad, op=dist.ReduceOp.SUM)
        weights = weights - 0.3 * grad / dist.get_world_size()
        time.sleep(0.01)
    return weights


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    valley = VALLEYS[dist.get_rank()]
    with tempfile.TemporaryDirectory(prefix="frost-") as root:
        weights = torch.zeros(2, 1)
        for season, nights in ((2022, 60), (2023, 80), (2024, 400)):
            cache = WeatherCache(pathlib.Path(root, str(season)), valley)
            cache.extract(nights)
            weights = fit(weights, cache.read(), steps=40)
            print(f"{valley} {season}: {weights.view(-1).tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
