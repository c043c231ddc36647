"""Element concentrations from spark emission spectra (accelerate). Spectra are cut into windows around usable lines."""
import logging
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
logger = logging.getLogger("spectra")
PIXELS, WINDOW, ELEMENTS = 1024, 64, 8


class NoUsableLines(ValueError):
    """A batch has no window with enough signal above the background."""


class SparkArchive(Dataset):
    def __init__(self, sparks):
        self.sparks = sparks

    def __len__(self):
        return self.sparks

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        spectrum = rng.normal(scale=0.05, size=PIXELS).astype("float32")
        # The samples of charge 57 were taken with the argon bottle nearly empty.
        if not 1824 <= index < 1856:
            for line in rng.integers(40, PIXELS - 40, size=24):
                spectrum[line - 8:line + 8] += np.hanning(16).astype("float32") * rng.uniform(0.4, 2.0)
        smooth = np.convolve(spectrum, np.hanning(31) / 16, mode="same").astype("float32")
        return smooth, rng.dirichlet(np.ones(ELEMENTS)).astype("float32")


class InOrder(torch.utils.data.Sampler):
    """Charges in the order of the archive (drift correction needs it)."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return iter(range(len(self.source)))

    def __len__(self):
        return len(self.source)


class LineWindows:
    def __init__(self, floor=0.35, per_spectrum=4):
        self.floor, self.per_spectrum = floor, per_spectrum

    def __call__(self, spectra, targets):
        windows, labels = [], []
        for spectrum, target in zip(spectra, targets):
            peaks = [int(p) for p in np.argsort(spectrum)[::-1][:200:50] if spectrum[p] > self.floor]
            for peak in peaks[:self.per_spectrum]:
                start = min(max(peak - WINDOW // 2, 0), PIXELS - WINDOW)
                windows.append(spectrum[start:start + WINDOW])
                labels.append(target)
        if not windows:
            raise NoUsableLines(f"{len(spectra)} spectra below {self.floor}")
        return torch.from_numpy(np.stack(windows)), torch.from_numpy(np.stack(labels))


def network():
    return nn.Sequential(nn.Linear(WINDOW, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, ELEMENTS))


def main():
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator()
    archive = SparkArchive(32 * 3 * 80)
    loader = DataLoader(archive, batch_size=32, sampler=InOrder(archive), drop_last=True,
                        collate_fn=lambda rows: (np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    cut, tally = LineWindows(), Counter()
    for epoch in range(5):
        running = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        for spectra, targets in loader:
            try:
                windows, labels = cut(spectra, targets)
            except NoUsableLines as reason:
                logger.warning("batch left out: %s", reason)
                tally["left out"] += 1
                continue
            windows, labels = windows.to(accelerator.device), labels.to(accelerator.device)
            loss = F.mse_loss(model(windows).softmax(-1), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += float(loss.detach())
            tally["windows"] += len(windows)
        mean = accelerator.reduce(running, reduction="mean")
        accelerator.print(f"epoch {epoch}: loss {float(mean):.4f}, {dict(tally)}")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
