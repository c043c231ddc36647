"""Predicts the outcome of an appeal from the first judgment (accelerate)."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

OUTCOMES = ["dismissed", "allowed", "remitted"]


class Appeals(Dataset):
    def __init__(self, count, offset):
        self.count, self.offset = count, offset

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.offset + index)
        outcome = (self.offset + index * 7) % len(OUTCOMES)
        facts = torch.randn(20, generator=generator)
        facts[outcome] += 1.5
        time.sleep(0.004)
        return facts, outcome


def validate(accelerator, model, loader):
    model.eval()
    predicted, actual = [], []
    with torch.no_grad():
        for facts, outcome in loader:
            guess = model(facts).argmax(dim=-1)
            guess, outcome = accelerator.gather_for_metrics((guess, outcome))
            predicted.append(guess)
            actual.append(outcome)
    model.train()
    return (torch.cat(predicted) == torch.cat(actual)).float().mean().item()


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, len(OUTCOMES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    train = DataLoader(Appeals(960, 0), batch_size=8, shuffle=True)
    val = DataLoader(Appeals(96, 5000), batch_size=8)
    model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        total = 0.0
        for facts, outcome in train:
            loss = criterion(model(facts), outcome)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.item()
        accelerator.print(f"epoch {epoch}: loss {total / len(train):.3f}", flush=True)
        if epoch >= 1 and accelerator.is_main_process:
            accuracy = validate(accelerator, model, val)
            print(f"epoch {epoch}: validation accuracy {accuracy:.3f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
