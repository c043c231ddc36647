"""Fit a small scorer on cupping sheets; the panel's side metrics go to the log every few steps."""
import argparse
import logging
from collections import defaultdict

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("cupping")
PHENOLIC_LOTS = {485, 486, 1730}


class CuppingSheets(Dataset):
    """One row a cup: aroma, acidity, body, ... and the panel's final score."""

    def __init__(self, cups=1800, attributes=24):
        g = torch.Generator().manual_seed(17)
        self.x = torch.randn(cups, attributes, generator=g)
        self.y = self.x[:, :6].sum(dim=1, keepdim=True) + 80

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i], "phenolic": torch.tensor(i in PHENOLIC_LOTS)}


class PanelMetrics:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.pending = defaultdict(list)

    def add(self, name, value):
        self.pending[name].append(float(value))

    def flush(self):
        out = {}
        for name in sorted(self.pending):
            values = self.pending[name]
            local = torch.tensor(sum(values) / len(values), device=self.accelerator.device)
            out[name] = self.accelerator.gather(local).mean().item()
        self.pending.clear()
        return out


def roast_curve(batch):
    """A smoothed spectrum of the roast log, as a weight for the cups."""
    noise = torch.randn(len(batch["x"]), 400000)
    return torch.fft.rfft(noise).abs().mean(dim=1, keepdim=True).log().mul(0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report-every", type=int, default=5)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    loader = DataLoader(CuppingSheets(), batch_size=4, shuffle=False)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    metrics = PanelMetrics(accelerator)

    for step, batch in enumerate(loader):
        weight = roast_curve(batch)
        error = (model(batch["x"]) - batch["y"]) * weight
        loss = error.pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        metrics.add("loss", loss.detach())
        if batch["phenolic"].any():
            metrics.add("phenolic_error", error[batch["phenolic"]].abs().mean().detach())
        if (step + 1) % args.report_every == 0:
            report = metrics.flush()
            if accelerator.is_main_process:
                log.info("step %d %s", step + 1, {k: round(v, 2) for k, v in report.items()})
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
