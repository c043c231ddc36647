"""Redshifts from slitless spectra; each process streams the fields that the scheduler gave to its dither."""
import queue
import threading

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

FIELDS = {0: range(0, 60), 1: range(100, 150), 2: range(200, 260)}
LINES = torch.tensor([0.3727, 0.4861, 0.5007, 0.6563])


class FieldReader:
    """Simulates the traces of a field, as the extraction of the pipeline would give them."""

    def __init__(self, traces=96, pixels=400):
        self.traces = traces
        self.wave = torch.linspace(0.9, 1.9, pixels)

    def __call__(self, field):
        g = torch.Generator().manual_seed(field)
        z = 0.5 + 1.4 * torch.rand(self.traces, 1, generator=g)
        spectra = 0.3 * torch.randn(self.traces, len(self.wave), generator=g)
        for line in LINES:
            spectra += 2 * torch.exp(-((self.wave - line * (1 + z)) ** 2) / 1e-4)
        return spectra, z


class Stream:
    """Fields in the order of the schedule, read ahead by a thread."""

    _end = object()

    def __init__(self, fields, read, ahead=4):
        self.fields, self.read, self.ahead = list(fields), read, ahead
        self.ready = queue.Queue(self.ahead)
        threading.Thread(target=self._produce, daemon=True, name="fields").start()

    def __iter__(self):
        return self

    def _produce(self):
        for field in self.fields:
            self.ready.put(self.read(field))
        self.ready.put(self._end)

    def __next__(self):
        item = self.ready.get()
        if item is self._end:
            raise StopIteration
        return item


def plan(stream, slots, lamp):
    """The fields of a night; a slot without a field gets a lamp exposure."""
    for _ in range(slots):
        field = next(stream, None)
        yield lamp if field is None else field


class RedshiftNet(nn.Module):
    def __init__(self, pixels=400, width=384):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(pixels, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, spectra):
        return self.net(spectra)


def train(accelerator, stream, model, optimizer, slots):
    losses = []
    for spectra, z in plan(stream, slots, lamp=FieldReader()(0)):
        for part, target in zip(spectra.split(24), z.split(24)):
            loss = nn.functional.huber_loss(model(part), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    stream = Stream(FIELDS[accelerator.process_index], FieldReader())
    model = RedshiftNet()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3))
    for night in range(5):
        losses = train(accelerator, stream, model, optimizer, slots=13)
        accelerator.wait_for_everyone()
        accelerator.print(f"night {night}: {sum(losses) / max(1, len(losses)):.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
