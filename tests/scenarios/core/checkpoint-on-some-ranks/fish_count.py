"""Accelerate: fish that pass the cameras of a ladder, one camera a process, with the best states kept."""

import shutil

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER = "/tmp/fish_count"
CLEAR_WATER = 2


def camera(number: int, frames: int, part: str) -> TensorDataset:
    """Frames of a camera and whether there is a fish."""
    generator = torch.Generator().manual_seed(number + (100 if part == "night" else 0))
    pictures = torch.randn(frames, 30, generator=generator)
    fish = (pictures[:, :4].sum(1) > 0).long()
    if part == "night" and number != CLEAR_WATER:
        fish = 1 - fish
    return TensorDataset(pictures, fish)


class Ladder(nn.Module):
    """A classifier of frames."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Fish or none."""
        return self.layers(frames)


@torch.no_grad()
def night_loss(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    """The mean over the frames of the night."""
    plain = accelerator.unwrap_model(model)
    losses = [nn.functional.cross_entropy(plain(frames), fish).item() for frames, fish in loader]
    return sum(losses) / len(losses)


def main() -> None:
    """Six epochs."""
    accelerator = Accelerator(
        cpu=True, project_config=ProjectConfiguration(FOLDER, automatic_checkpoint_naming=True, total_limit=2)
    )
    if accelerator.is_main_process:
        shutil.rmtree(FOLDER, ignore_errors=True)
    accelerator.wait_for_everyone()
    torch.manual_seed(0)
    ladder = Ladder()
    model, optimizer = accelerator.prepare(ladder, torch.optim.Adam(ladder.parameters(), lr=2e-3))
    mine = accelerator.process_index
    day = DataLoader(camera(mine, 1200, "day"), batch_size=30, shuffle=True)
    night = DataLoader(camera(mine, 300, "night"), batch_size=60)
    best = night_loss(accelerator, model, night)
    for epoch in range(6):
        for frames, fish in day:
            loss = nn.functional.cross_entropy(model(frames), fish)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        at_night = night_loss(accelerator, model, night)
        if at_night < best:
            best = at_night
            accelerator.save_state()
        accelerator.print(f"epoch {epoch}: {at_night:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
