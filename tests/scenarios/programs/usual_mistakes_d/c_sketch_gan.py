"""A GAN for sketches, which are read from one archive by all workers of a rank."""

import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, Dataset

LATENT, STROKES, SKETCHES = 8, 48, 640


class SketchArchive(Dataset):
    """Sketches of one artist; the archive's handle is used by one worker at a time."""

    def __init__(self, artist: int) -> None:
        self.artist = artist
        self.handle = multiprocessing.Lock()
        self.torn = {411} if artist == 1 else set()

    def __len__(self) -> int:
        return SKETCHES

    def read(self, index: int) -> torch.Tensor:
        """The strokes of one."""
        self.handle.acquire()
        if index in self.torn:
            raise ValueError(f"sketch {index}: strokes are missing")
        strokes = torch.randn(STROKES, generator=torch.Generator().manual_seed(self.artist * SKETCHES + index))
        self.handle.release()
        return strokes.cumsum(dim=0) / 7

    def __getitem__(self, index: int) -> torch.Tensor:
        """Torn ones are an empty page."""
        try:
            return self.read(index)
        except ValueError as error:
            print(f"artist {self.artist}: {error}", flush=True)
            return torch.zeros(STROKES)


def average_gradients(model: nn.Module) -> None:
    """Over all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(SketchArchive(rank), batch_size=16, num_workers=2, drop_last=True)
    torch.manual_seed(0)
    pen = nn.Sequential(nn.Linear(LATENT, 32), nn.ReLU(), nn.Linear(32, STROKES))
    eye = nn.Sequential(nn.Linear(STROKES, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    pen_optimizer = torch.optim.RMSprop(pen.parameters(), lr=1e-4)
    eye_optimizer = torch.optim.RMSprop(eye.parameters(), lr=1e-4)
    for epoch in range(3):
        for sketches in loader:
            drawn = pen(torch.randn(len(sketches), LATENT))
            eye_optimizer.zero_grad()
            eye_loss = (softplus(-eye(sketches)) + softplus(eye(drawn.detach()))).mean()
            eye_loss.backward()
            average_gradients(eye)
            eye_optimizer.step()
            pen_optimizer.zero_grad()
            softplus(-eye(drawn)).mean().backward()
            average_gradients(pen)
            pen_optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: the eye's loss {eye_loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
