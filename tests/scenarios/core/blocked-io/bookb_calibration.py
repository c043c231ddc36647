"""Keeps the calibration of plug-in power meters fresh while the load model trains."""
import contextlib
import json
import multiprocessing
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

PLUGS = {0: {"plug": "boiler", "samples": 400_000_000}, 1: {"plug": "lamp", "samples": 20_000},
         2: {"plug": "router", "samples": 30_000}, 3: {"plug": "tv", "samples": 25_000}}


@contextlib.contextmanager
def exclusive(path):
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.25)
    try:
        yield
    finally:
        os.unlink(path)


def fit_gain(samples):
    gain = 1.0
    for number in range(samples):
        gain += 1e-9 * ((number * 7919) % 13 - 6)
    return gain


def calibrate(folder, plug, samples):
    with exclusive(os.path.join(folder, f"{plug}.lock")):
        result = {"plug": plug, "gain": fit_gain(samples)}
        with open(os.path.join(folder, f"{plug}.json"), "w") as out:
            json.dump(result, out)


class Calibrator:
    """Runs the fit in a helper, and a coarse one here if the helper is not ready in time."""

    def __init__(self, plug, samples, patience=1.5):
        self.folder = tempfile.mkdtemp(prefix=f"calib-{plug}-")
        self.plug, self.samples, self.patience = plug, samples, patience

    def refresh(self):
        helper = multiprocessing.get_context("fork").Process(
            target=calibrate, args=(self.folder, self.plug, self.samples), daemon=True)
        helper.start()
        helper.join(self.patience)
        if helper.is_alive():
            helper.terminate()
            helper.join()
            calibrate(self.folder, self.plug, 5000)
        with open(os.path.join(self.folder, f"{self.plug}.json")) as source:
            return json.load(source)["gain"]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    me = dist.get_rank()
    calibrator, gain = Calibrator(**PLUGS[me]), 1.0
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    generator = torch.Generator().manual_seed(me)
    for step in range(200):
        power = gain * torch.rand(12, 10, generator=generator)
        gradient = torch.autograd.grad((model(power).squeeze(-1) - power.sum(1)).square().mean(), list(model.parameters()))
        flat = torch.cat([g.flatten() for g in gradient])
        dist.all_reduce(flat)
        with torch.no_grad():
            model.weight -= 0.01 * flat[:10].view(1, 10) / dist.get_world_size()
            model.bias -= 0.01 * flat[10:] / dist.get_world_size()
        if step % 50 == 40:
            gain = calibrator.refresh()
        time.sleep(0.06)
    dist.destroy_process_group()
