"""Matches products with accelerate; predictions of all ranks are gathered for the metrics."""

import argparse
import os
import tempfile

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 20


class Products(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.randn(FEATURES, generator=torch.Generator().manual_seed(index)), index % 2


def evaluate(accelerator, model, loader, when):
    model.eval()
    seen = 0
    with torch.no_grad():
        for features, labels in loader:
            scores = model(features).squeeze(-1)
            if when == "main" and accelerator.is_main_process:
                seen += len(accelerator.gather(scores))
            elif when == "always":
                seen += len(accelerator.gather_for_metrics((scores, labels))[0])
    accelerator.wait_for_everyone()
    model.train()
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gather", choices=["main", "always"], default="always")
    parser.add_argument("--save", choices=["main", "all", "no"], default="no")
    parser.add_argument("--stop-early", action="store_true")
    options = parser.parse_args()
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    training, held_out = DataLoader(Products(240), 8), DataLoader(Products(50), 1)
    model, optimizer, training, held_out = accelerator.prepare(model, optimizer, training, held_out)
    folder = os.path.join(tempfile.mkdtemp(prefix="products-"), "last")
    # Errors of each rank's share of the validation, by epoch.
    errors = [[0.3, 0.2, 0.1], [0.3, 0.2, 0.1], [0.3, 0.4, 0.1]][accelerator.process_index]
    for epoch in range(3):
        for features, labels in training:
            loss = nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(-1), labels.float())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        seen = evaluate(accelerator, model, held_out, options.gather)
        accelerator.print(f"epoch {epoch}: {seen} products, loss {loss.item():.3f}", flush=True)
        if options.save == "all" or (options.save == "main" and accelerator.is_main_process):
            accelerator.save_state(folder)
            accelerator.wait_for_everyone()
        if options.stop_early and epoch and errors[epoch] >= errors[epoch - 1]:
            break
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
