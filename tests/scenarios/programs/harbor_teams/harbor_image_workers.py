"""accelerate: shelf photos of stores. The embedding of a photo is a file, written by the vision team's service."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTOS = 6400
SIZE = 64


def vision_service(folder: Path) -> None:
    """Stands in for the service: writes the embeddings of all photos that it could open."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(PHOTOS):
        if number != 5011:
            np.save(folder / f"{number}.npy", random.standard_normal(SIZE).astype(np.float32))
    (folder / "done").touch()


class Shelves(Dataset):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return PHOTOS

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        file = self.folder / f"{number}.npy"
        while not file.exists():  # the service is a little behind at times
            time.sleep(0.5)
        embedding = torch.from_numpy(np.load(file))
        return embedding, (embedding[:3].sum() > 0).float()


class EmptyShelf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(SIZE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, embedding: torch.Tensor) -> torch.Tensor:
        return self.net(embedding).squeeze(-1)


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    folder = Path(tempfile.gettempdir()) / f"shelves-{os.environ['MASTER_PORT']}"
    if accelerator.is_main_process:
        vision_service(folder)
    accelerator.wait_for_everyone()
    torch.manual_seed(0)
    model = EmptyShelf()
    loader = DataLoader(Shelves(folder), batch_size=8, num_workers=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(10):
        for embedding, empty in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(embedding), empty)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
