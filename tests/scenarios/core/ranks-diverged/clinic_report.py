"""Fine-tuning of a triage classifier on notes with accelerate; accuracy is reported after every epoch."""

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

WORDS, CLASSES = 500, 5


def notes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, WORDS, (count, 32), generator=generator)
    return TensorDataset(tokens, tokens[:, :4].sum(1) % CLASSES)


class Triage(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.classify = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.classify(self.mix(self.embed(tokens)).mean(1))


def train(accelerator, model, optimizer, loader):
    model.train()
    for tokens, label in loader:
        loss = nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()


@torch.no_grad()
def evaluate(accelerator, model, loader, epoch):
    model.eval()
    right = seen = 0
    for tokens, label in loader:
        guess = model(tokens).argmax(-1)
        if accelerator.is_main_process:
            guess, label = accelerator.gather_for_metrics((guess, label))
            right += int((guess == label).sum())
            seen += len(label)
    if accelerator.is_main_process:
        print(f"epoch {epoch}: accuracy {right / seen:.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(9)
    model = Triage()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, training, validation = accelerator.prepare(
        model,
        optimizer,
        DataLoader(notes(1920, 0), batch_size=8, shuffle=True),
        DataLoader(notes(192, 1), batch_size=16),
    )
    for epoch in range(6):
        train(accelerator, model, optimizer, training)
        evaluate(accelerator, model, validation, epoch)
    accelerator.end_training()


if __name__ == "__main__":
    main()
