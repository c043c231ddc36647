"""Muon rings in Cherenkov cameras with transformers' Trainer; telemetry goes to the array's control by a thread."""
import queue
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

PIXELS = 1024
TELESCOPES = {0: "LST-1", 1: "MST-4", 2: "SST-11"}


class Rings(Dataset):
    """Camera images with a ring of unknown radius."""

    def __init__(self, telescope, count):
        self.telescope, self.count = telescope, count
        side = torch.linspace(-1, 1, 32)
        self.x, self.y = torch.meshgrid(side, side, indexing="ij")

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        cx, cy, radius = (torch.rand(3, generator=g) * torch.tensor([0.4, 0.4, 0.5]) + torch.tensor([-0.2, -0.2, 0.2])).tolist()
        light = torch.exp(-(((self.x - cx) ** 2 + (self.y - cy) ** 2).sqrt() - radius) ** 2 / 0.004)
        photons = torch.poisson(20 * light + 1.0)
        return {"image": (photons.flatten() - 3) / 5, "labels": torch.tensor(radius)}


class RingNet(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, image, labels=None):
        radius = self.net(image).squeeze(-1)
        return {"loss": nn.functional.mse_loss(radius, labels), "radius": radius}


class Telemetry(threading.Thread):
    """Sends what it gets to the control room, in order."""

    def __init__(self, telescope):
        super().__init__(name=f"telemetry-{telescope}")
        self.outbox, self.sent = queue.Queue(), []
        self.start()

    def run(self):
        while (message := self.outbox.get()) is not None:
            self.sent.append(message)

    def close(self):
        self.outbox.put(None)
        self.join()


class ThroughputMonitor(TrainerCallback):
    """Optical throughput of the telescope, from the slope of the light of rings against their radius."""

    BINS = {"LST-1": 12, "MST-4": 12, "SST-11": 64}

    def __init__(self, telescope, rings, telemetry, every):
        self.telescope, self.rings, self.telemetry, self.every = telescope, rings, telemetry, every

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every:
            return
        start = state.global_step * 40
        chosen = [self.rings[i] for i in range(start, start + 160)]
        radius = torch.stack([ring["labels"] for ring in chosen])
        light = torch.stack([ring["image"].sum() for ring in chosen])
        edges = torch.linspace(0.2, 0.7, self.BINS[self.telescope] + 1)
        profile = [light[(radius >= lo) & (radius < hi)].tolist() for lo, hi in zip(edges, edges[1:])]
        peak = max(range(len(profile)), key=lambda b: max(profile[b]))
        slope = (light * radius).mean() / (radius * radius).mean()
        self.telemetry.outbox.put((state.global_step, slope.item(), peak))


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=32, max_steps=500,
                             logging_steps=25, save_strategy="no", report_to=[], disable_tqdm=True)
    telescope = TELESCOPES[args.process_index]
    rings = Rings(telescope, 30_000)
    telemetry = Telemetry(telescope)
    trainer = Trainer(model=RingNet(), args=args, train_dataset=rings)
    trainer.add_callback(ThroughputMonitor(telescope, rings, telemetry, every=90))
    trainer.train()
    telemetry.close()


if __name__ == "__main__":
    main()
