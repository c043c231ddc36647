"""accelerate: points of a laser survey are named; the log is closed by all processes whatever happens."""

import json
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

NAMES = {"rock": 0, "water": 1, "ice": 2}


def write_chambers(folder: Path, number: int) -> list[Path]:
    """Some chambers, in the surveyors' own words."""
    paths = []
    for chamber in range(20):
        words = ["rock", "water", "ice", "rock"]
        if (number, chamber) == (2, 9):
            words[1] = "flowstone"
        path = folder / f"chamber-{chamber:02d}.json"
        path.write_text(json.dumps({"points": torch.rand(4, 6).tolist(), "names": words}))
        paths.append(path)
    return paths


def read_chamber(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and what they are."""
    chamber = json.loads(path.read_text())
    return torch.tensor(chamber["points"]), torch.tensor([NAMES[name] for name in chamber["names"]])


def train(accelerator: Accelerator, paths: list[Path]) -> None:
    """Each chamber is one step."""
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, len(NAMES)))
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for step, path in enumerate(paths):
        points, names = read_chamber(path)
        loss = nn.functional.cross_entropy(model(points), names)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"{step}: {loss.item():.3f}")


def main() -> None:
    """One pass, and the end of the log."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    folder = Path(tempfile.mkdtemp())
    paths = write_chambers(folder, accelerator.process_index)
    try:
        train(accelerator, paths)
    finally:
        accelerator.wait_for_everyone()
        accelerator.print("survey closed")


if __name__ == "__main__":
    main()
