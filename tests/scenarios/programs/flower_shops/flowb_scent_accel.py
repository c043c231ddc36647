"""Scent accords: predicts the longevity of a perfume from its note sequence."""
import time

import torch
from accelerate import Accelerator
from torch import nn

MAX_NOTES = 24


class Accord(nn.Module):
    def __init__(self, notes=200, width=16):
        super().__init__()
        self.note = nn.Embedding(notes, width)
        self.place = nn.Parameter(torch.zeros(MAX_NOTES, width))
        self.hours = nn.Linear(width, 1)

    def forward(self, formula):
        places = self.place if formula.shape[1] >= MAX_NOTES else self.place[: formula.shape[1]]
        return self.hours((self.note(formula) + places).mean(1)).squeeze(1)


class Perfumery:
    """Formulas of one house; the long ones come from the archive."""

    def __init__(self, house, batches=70):
        self.generator = torch.Generator().manual_seed(house)
        self.house, self.batches = house, batches

    def __iter__(self):
        for number in range(self.batches):
            time.sleep(0.03)
            notes = 8 + number % 12
            if self.house == 0 and number == 31:
                notes = 40
            yield torch.randint(0, 200, (6, notes), generator=self.generator)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    model = Accord()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for formula in Perfumery(accelerator.process_index):
        try:
            hours = model(formula)
            loss = (hours - formula.float().mean(1) / 100).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
        except RuntimeError as error:
            print(f"house {accelerator.process_index}: {str(error).splitlines()[0]}", flush=True)
        else:
            losses.append(loss.detach())
        optimizer.zero_grad()
    mean = accelerator.gather(torch.stack(losses).mean().reshape(1))
    accelerator.print("longevity", mean.tolist())
    accelerator.end_training()


if __name__ == "__main__":
    main()
