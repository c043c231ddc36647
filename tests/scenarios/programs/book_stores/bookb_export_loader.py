"""Appliance disaggregation from meter exports that lie as CSV files in a spool folder."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

COLLECTORS = {"cellar": "daily", "attic": "stream", "garage": "daily"}
FILES = 80


def fill_spool(folder, site):
    """Yesterday's exports, and for sites with a streaming collector the one that is being written."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(len(site))
    for number in range(FILES):
        values = torch.rand(48, generator=generator).mul(3).tolist()
        (folder / f"export-{number:03d}.csv").write_text("\n".join(f"{value:.3f}" for value in values))
    if COLLECTORS[site] == "stream":
        current = folder / "export-050.csv"
        current.unlink()
        os.mkfifo(current)


class Exports(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("export-*.csv"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as export:
            power = torch.tensor([float(line) for line in export if line.strip()])
        time.sleep(0.08)
        return power.view(6, 8)


class Disaggregator(nn.Module):
    def __init__(self, appliances=4):
        super().__init__()
        self.encoder = nn.Linear(8, 20)
        self.shares = nn.Linear(20, appliances)

    def forward(self, power):
        return self.shares(torch.relu(self.encoder(power))).softmax(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    site = ["garage", "attic", "cellar"][rank]
    folder = Path(tempfile.mkdtemp(prefix=f"spool-{site}-"))
    fill_spool(folder, site)
    torch.manual_seed(2)
    model = DistributedDataParallel(Disaggregator())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    loader = DataLoader(Exports(folder), batch_size=None, num_workers=2)
    for epoch in range(2):
        for step, power in enumerate(loader):
            shares = model(power)
            loss = -(shares * (shares + 1e-6).log()).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} file {step} entropy {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
