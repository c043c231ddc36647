"""accelerate: flats and their rents. A column that is missing ends the run."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Flats(Dataset):
    def __init__(self):
        self.rows = [{"rooms": 1 + n % 5, "size": 20 + n % 90, "rent": 300 + 9 * (n % 90)} for n in range(240)]
        self.rows[191] = {"rooms": 3, "sise": 70, "rent": 930}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return torch.tensor([row["rooms"] / 5, row["size"] / 110]), torch.tensor([row["rent"] / 1000])


def main():
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(Flats(), batch_size=8))
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(epoch, accelerator.gather(loss.detach()[None]).mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
