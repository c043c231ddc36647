"""Which penguin is it? Re-identification of tagged birds, with accelerate."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

BIRDS, PIXELS = 25, 100


def make_data(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.rand(size, PIXELS, generator=generator), torch.randint(BIRDS, (size,), generator=generator)
    )


def train_epoch(accelerator, model, optimizer, loader):
    model.train()
    for images, birds in loader:
        loss = nn.functional.cross_entropy(model(images), birds)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)


class Gallery:
    """Embeddings of the validation birds, for the page in the mess room."""

    def __init__(self, accelerator, loader):
        self.accelerator, self.loader = accelerator, loader

    def build(self, model):
        model.eval()
        shown = 0
        network = self.accelerator.unwrap_model(model)
        with torch.no_grad():
            for images, birds in self.loader:
                guesses = network(images).argmax(dim=-1)
                if self.accelerator.is_main_process:
                    both = self.accelerator.gather_for_metrics((guesses, birds))
                    shown += len(both[0])
        return shown


def main():
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(PIXELS, 64), nn.ReLU(), nn.Linear(64, BIRDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = DataLoader(make_data(1440, 1), batch_size=16, shuffle=True)
    test = DataLoader(make_data(96, 2), batch_size=16)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    gallery = Gallery(accelerator, test)
    for epoch in range(6):
        train_epoch(accelerator, model, optimizer, train)
        accelerator.print(f"epoch {epoch} done")
        if epoch == 1:
            shown = gallery.build(model)
            accelerator.print(f"gallery of {shown}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
