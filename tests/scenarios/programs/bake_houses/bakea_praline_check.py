"""Praline sorting with accelerate; at the end of training each line checks what it has in its archive."""
import argparse
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, TensorDataset

# pictures in the archives for the final check; the second line has the large trays, photographed in tiles
ARCHIVE = ((24, 1), (112, 13), (24, 1))


class Trays(Dataset):
    def __init__(self, line):
        self.count, self.tiles = ARCHIVE[line]
        self.line = line

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.line * 10_000 + i)
        tray = torch.zeros(24)
        for _ in range(self.tiles):
            tile = torch.rand(24, 40, generator=gen)
            tray += (tile @ tile.T).diagonal() / 40
            time.sleep(0.018)  # tiff decoder
        return tray / self.tiles, (tray.sum() > 8 * self.tiles).long()


def training_data():
    gen = torch.Generator().manual_seed(77)
    x = torch.rand(1440, 24, generator=gen)
    return TensorDataset(x, (x.sum(1) > 12).long())


@torch.no_grad()
def check(accelerator, model, line):
    right = torch.zeros(2)
    for number, (trays, sound) in enumerate(DataLoader(Trays(line), batch_size=8, num_workers=2)):
        guess = accelerator.unwrap_model(model)(trays).argmax(1)
        right += torch.tensor([(guess == sound).sum(), len(sound)])
        if number % 4 == 0:
            print(f"line {line}: {int(right[1])} trays checked", flush=True)
    return accelerator.reduce(right, reduction="sum")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    loader = DataLoader(training_data(), batch_size=options.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(1):
        for x, y in loader:
            time.sleep(0.05)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    right, total = check(accelerator, model, accelerator.process_index).tolist()
    accelerator.print(f"loss {loss.item():.3f}, {right:.0f} of {total:.0f} trays sorted as by hand")
    for x, y in loader:
        time.sleep(0.03)
        accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
