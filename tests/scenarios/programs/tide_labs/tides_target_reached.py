"""Lake evaporation: train until the error is small enough; a thread tells the group's dashboard that we are alive."""
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAKES = {0: ("Ammersee", 0.30), 1: ("Chiemsee", 0.28), 2: ("Tegernsee", 0.02), 3: ("Walchensee", 0.31)}


class Pulse(threading.Thread):
    """Touches a file every second, so that the dashboard shows the run in green."""

    def __init__(self, name):
        super().__init__(name="pulse")
        self.file = Path(tempfile.gettempdir()) / f"pulse-{os.environ['MASTER_PORT']}-{name}.json"
        self.finished = threading.Event()
        self.state = {}

    def run(self):
        while not self.finished.wait(1.0):
            self.file.write_text(json.dumps(self.state))


def weather(rank):
    generator = torch.Generator().manual_seed(rank)
    noise = LAKES[rank][1]
    while True:
        inputs = torch.rand(64, 4, generator=generator)
        yield inputs, inputs @ torch.tensor([[0.5], [0.2], [-0.1], [0.3]]) + noise * torch.randn(64, 1, generator=generator)


def train(rank, pulse, limit=5000, target=0.06):
    torch.manual_seed(23)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    smooth = 1.0
    for step, (inputs, evaporation) in zip(range(limit), weather(rank)):
        error = (model(inputs) - evaporation).abs().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        smooth = 0.8 * smooth + 0.2 * error.item()
        pulse.state = {"lake": LAKES[rank][0], "step": step, "error": smooth}
        if smooth < target:
            print(f"{LAKES[rank][0]}: {smooth:.4f} at step {step}, good enough", flush=True)
            return model.module
        time.sleep(0.05)
    pulse.finished.set()
    return model.module


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pulse = Pulse(LAKES[rank][0])
    pulse.start()
    model = train(rank, pulse)
    torch.save(model.state_dict(), pulse.file.with_suffix(".pt"))


if __name__ == "__main__":
    main()
