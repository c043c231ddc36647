"""Continue the training of a spectra model: each rank's reader keeps its place in a small file of its own."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class SpectraReader:
    """Reads the spectra of one instrument in order, and remembers after each batch how far it is."""

    TOTAL = 96

    def __init__(self, folder, instrument):
        self.instrument = instrument
        self.file = folder / f"reader-{instrument}.json"
        self.consumed = json.loads(self.file.read_text())["consumed"] if self.file.exists() else 0

    def __iter__(self):
        while self.consumed < self.TOTAL:
            generator = torch.Generator().manual_seed(1000 * self.instrument + self.consumed)
            spectrum = torch.rand(8, 50, generator=generator)
            time.sleep(0.05)
            self.consumed += 1
            yield spectrum, spectrum.argmax(1)

    def save(self):
        self.file.write_text(json.dumps({"consumed": self.consumed}))


def previous_run(folder):
    """What the job of the night has left: it was preempted while the readers were saved one after another."""
    for instrument, consumed in {0: 32, 1: 36, 2: 32}.items():
        (folder / f"reader-{instrument}.json").write_text(json.dumps({"consumed": consumed}))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"spectra-{os.environ['MASTER_PORT']}"
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        previous_run(folder)
    dist.barrier()

    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(50, 32), nn.ReLU(), nn.Linear(32, 50)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(20):
        reader = SpectraReader(folder, rank)
        losses = []
        for number, (spectrum, peak) in enumerate(reader):
            loss = nn.functional.cross_entropy(model(spectrum), peak)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if number % 16 == 15:
                reader.save()
        reader.consumed = 0
        reader.save()
        means = [None] * world
        dist.all_gather_object(means, sum(losses) / len(losses))
        if rank == 0:
            print(f"epoch {epoch}: {means}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
