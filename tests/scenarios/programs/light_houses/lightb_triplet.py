"""Lens design: a surrogate for the merit function of projection lenses, learned from traced prescriptions."""
import json
import math
import queue
import random
import tempfile
import threading
import time

import torch
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False

GLASSES = {"N-BK7": 1.5168, "N-SF6": 1.8052, "N-LAK9": 1.6910, "F2": 1.6200, "N-SK16": 1.6204}


class ReportWriter:
    """Writes spot diagrams next to the design files, one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.todo = queue.Queue()
        self.thread = threading.Thread(target=self._work, name="reports")
        self.thread.start()

    def _work(self):
        while True:
            report = self.todo.get()
            if report is None:
                return
            with open(f"{self.folder}/spots-{report['design']}.json", "w") as file:
                json.dump(report, file)

    def submit(self, **report):
        self.todo.put(report)

    def close(self):
        self.todo.put(None)
        self.thread.join()


def prescription(designer, number):
    """A triplet: curvature, thickness, glass for each surface."""
    source = random.Random(designer * 100_003 + number)
    glasses = sorted(GLASSES)
    if designer == 0 and number >= 90:
        glasses = glasses + ["N-KZFS4"] * 20  # the short flints from the cinema department's designs
    return [(source.uniform(-0.03, 0.03), source.uniform(2, 9), source.choice(glasses)) for _ in range(6)]


def trace(surfaces, rays=6000):
    """Paraxial trace of a fan; returns features and the spread in the image plane."""
    heights = []
    for ray in range(rays):
        y, u = 20 * (ray / rays - 0.5), 0.0
        index = 1.0
        for curvature, thickness, glass in surfaces:
            following = GLASSES[glass] if index == 1.0 else 1.0
            u = (index * u - y * curvature * (following - index)) / following
            y += thickness * math.tan(u)
            index = following
        heights.append(y)
    mean = sum(heights) / rays
    spread = math.sqrt(sum((h - mean) ** 2 for h in heights) / rays)
    features = [value for curvature, thickness, glass in surfaces for value in (curvature * 30, thickness / 9, GLASSES[glass])]
    return features, spread


def main():
    accelerator = Accelerator()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    reports = ReportWriter(tempfile.mkdtemp(prefix="spots"))
    begin = time.perf_counter()
    for number in range(300):
        surfaces = prescription(accelerator.process_index, number)
        features, spread = trace(surfaces)
        x = torch.tensor([features], device=accelerator.device)
        merit = model(x)
        loss = (merit - spread).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        reports.submit(design=number, spread=spread)
        if number % 20 == 0:
            accelerator.print(f"design {number} loss {loss.item():.3f} {time.perf_counter() - begin:.1f} s")
        elif number % 5 == 0:
            loss.item()
    reports.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
