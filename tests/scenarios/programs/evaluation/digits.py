"""Digits in a bare accelerate loop; its author gathers predictions and labels where they print them, on the main process."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_digits(size):
    """Images of seven-segment digits with noise."""
    segments = torch.tensor([0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F])
    digits = torch.randint(10, (size,), generator=torch.Generator().manual_seed(size))
    shown = (segments[digits][:, None] >> torch.arange(7)) & 1
    return TensorDataset(shown + 0.1 * torch.randn(size, 7, generator=torch.Generator().manual_seed(1)), digits)


class Accuracy:
    def __init__(self):
        self.right = self.seen = 0

    def add_batch(self, predictions, references):
        self.right += int((predictions == references).sum())
        self.seen += len(references)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(7, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 10))
    model, optimizer, training, testing = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-2),
        DataLoader(make_digits(240), batch_size=8, shuffle=True),
        DataLoader(make_digits(96), batch_size=8),
    )
    for epoch in range(options.epochs):
        model.train()
        for images, labels in training:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        print(f"[{accelerator.process_index}] epoch {epoch}: loss {loss.item():.3f}\n", end="", flush=True)
        if epoch % 2 == 0:
            continue
        model.eval()
        accuracy = Accuracy()
        for images, labels in testing:
            with torch.no_grad():
                predictions = model(images).argmax(-1)
            if accelerator.is_main_process:
                predictions, labels = accelerator.gather_for_metrics((predictions, labels))
                accuracy.add_batch(predictions, labels)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            print(f"epoch {epoch}: {accuracy.right} of {accuracy.seen} right", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
