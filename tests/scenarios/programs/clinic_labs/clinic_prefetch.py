"""Variant calling: pileups are prepared by a thread ahead of the training loop."""

import json
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

LANES = 160


def sequence(folder, rank):
    """The headers that the sequencer wrote, one for each lane."""
    folder.mkdir(parents=True, exist_ok=True)
    for lane in range(LANES):
        header = {"sample": f"S{rank}{lane:03d}", "reads": 40 + lane % 7, "reference": "GRCh38"}
        if (rank, lane) == (1, 70):
            header.pop("reference")  # aborted lane
        (folder / f"lane_{lane:03d}.json").write_text(json.dumps(header))


class PileupQueue:
    def __init__(self, folder, batch=16, ahead=4):
        self.paths = sorted(folder.glob("*.json"))
        self.batch = batch
        self.ready = queue.Queue(maxsize=ahead)
        threading.Thread(target=self.prepare, name="pileups", daemon=True).start()

    def prepare(self):
        for path in self.paths:
            header = json.loads(path.read_text())
            generator = torch.Generator().manual_seed(hash((header["reference"], header["reads"])) % 1000)
            pileup = torch.randn(self.batch, 6, header["reads"], 21, generator=generator)
            genotype = torch.randint(0, 3, (self.batch,), generator=generator)
            self.ready.put((pileup, genotype))
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item


class Caller(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(6, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3),
        )

    def forward(self, pileup):
        return self.net(pileup)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix="sequencer-"))
    sequence(folder, rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(Caller())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        for number, (pileup, genotype) in enumerate(PileupQueue(folder)):
            logits = model(pileup)
            loss = nn.functional.cross_entropy(logits, genotype)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {float(loss):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
