"""Container (ULD) weights from the scales of three cargo terminals, with accelerate. One text record per weighing."""
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

TERMINALS = {0: "ANC", 1: "ORD", 2: "HKG"}
RECORDS, BATCH = 3200, 16


def spool(terminal):
    """The scale's spool folder: closed records, and the pipe of the weighing that is open at the moment."""
    folder = Path(tempfile.mkdtemp(prefix=f"uld-{terminal.lower()}-"))
    rng = torch.Generator().manual_seed(len(terminal) + ord(terminal[0]))
    values = torch.rand(RECORDS, 6, generator=rng)
    live = {"ORD": 1935}.get(terminal)
    for number, row in enumerate(values.tolist()):
        path = folder / f"weighing-{number:05d}.txt"
        if number == live:
            os.mkfifo(path)
        else:
            path.write_text(" ".join(f"{v:.4f}" for v in row))
    return folder


class Weighings(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("weighing-*.txt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as record:
            row = [float(v) for v in record.read().split()]
        return torch.tensor(row[:5]), torch.tensor(row[:5]).sum() + 0.1 * row[5]


class TareNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 64), nn.Softplus(), nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 1))

    def forward(self, row):
        return self.layers(row).squeeze(-1)


def main():
    torch.set_num_threads(1)
    set_seed(21)
    accelerator = Accelerator(cpu=True)
    terminal = TERMINALS[accelerator.process_index]
    weighings = Weighings(spool(terminal))
    accelerator.print(f"{len(weighings)} weighings per terminal")
    loader = DataLoader(weighings, batch_size=BATCH, num_workers=2, drop_last=True)
    net = TareNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    net, optimizer = accelerator.prepare(net, optimizer)
    for epoch in range(3):
        for number, (rows, weights) in enumerate(loader):
            loss = nn.functional.mse_loss(net(rows), weights)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if number % 40 == 0:
                accelerator.print(f"epoch {epoch} batch {number} loss {loss.item():.4f}")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
