"""Bleaching severity from camera strips, trained with accelerate and FSDP2; a copy of the weights goes to the dive boat."""
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.logging import get_logger
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = get_logger("bleach")
SETTINGS = {"epochs": 6, "strips": 960, "batch": 8, "boat_every": 40, "width": 80}


class Strips(Dataset):
    """Each strip is a row of colour histograms along a ten metre tape."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        pixels = rng.normal(loc=index % 5, size=(60_000, 3)).astype(np.float32)
        hist = np.stack([np.histogram(pixels[:, c], bins=40, range=(-3, 8))[0] for c in range(3)])
        return torch.from_numpy(hist.reshape(-1).astype(np.float32) / 60_000), torch.tensor(float(index % 5))


class Strip2Severity(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Linear(120, width)
        self.body = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.severity = nn.Linear(width, 1)

    def forward(self, strip):
        h = self.stem(strip)
        for layer in self.body:
            h = h + torch.relu(layer(h))
        return self.severity(h).squeeze(-1)


class Boat:
    """The drive in the main process's machine is carried to the boat, so the copy is written there."""

    def __init__(self, accelerator, every):
        self.accelerator, self.every = accelerator, every
        self.folder = Path(tempfile.mkdtemp(prefix="boat-"))

    def maybe_copy(self, model, step):
        if step == 0 or step % self.every:
            return
        if self.accelerator.is_main_process:
            weights = self.accelerator.get_state_dict(model)
            torch.save({"step": step, "model": weights}, self.folder / "severity.pt")


def main():
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Linear"], state_dict_type="FULL_STATE_DICT")
    accelerator = Accelerator(fsdp_plugin=plugin)
    torch.backends.cudnn.enabled = False
    torch.manual_seed(3)
    model = Strip2Severity(SETTINGS["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    loader = DataLoader(Strips(SETTINGS["strips"]), batch_size=SETTINGS["batch"], shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    boat = Boat(accelerator, SETTINGS["boat_every"])
    step, began = 0, time.monotonic()
    for epoch in range(SETTINGS["epochs"]):
        for strips, severity in loader:
            loss = nn.functional.mse_loss(model(strips), severity)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            value = loss.item()
            if step % 10 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {value:.3f} {time.monotonic() - began:.1f}s", flush=True)
            boat.maybe_copy(model, step)
            step += 1
    accelerator.end_training()


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
