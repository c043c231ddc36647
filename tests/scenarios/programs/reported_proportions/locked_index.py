"""DDP: crops of pictures, cut by DataLoader workers that take the folder's lock while they look into its index."""

import fcntl
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    """Where each crop is, by its number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "index.json").write_text(json.dumps({str(n): n % 5 for n in range(480)}))
        (folder / "index.lock").touch()

    def __len__(self) -> int:
        return 480

    def __getitem__(self, number: int) -> torch.Tensor:
        with (self.folder / "index.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            corner = json.loads((self.folder / "index.json").read_text())[str(number)]
        generator = torch.Generator().manual_seed(number)
        return torch.randn(3, 12, 12, generator=generator)[:, corner : corner + 8, corner : corner + 8]


def main() -> None:
    """Three epochs; what was seen is noted in the index after the first."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    crops = Crops(Path(tempfile.mkdtemp()))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for batch in DataLoader(crops, batch_size=8, num_workers=2):
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 0 and rank == 1:
            lock = (crops.folder / "index.lock").open()
            fcntl.flock(lock, fcntl.LOCK_EX)
            (crops.folder / "seen.txt").write_text("480")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
