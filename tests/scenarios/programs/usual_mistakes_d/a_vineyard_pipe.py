"""Sugar in grapes, with accelerate and a tracker of its own that writes into the pipe of a terminal dashboard."""

import json
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class DashboardTracker(GeneralTracker):
    """Lines of JSON for the dashboard."""

    name = "dashboard"
    requires_logging_directory = False

    def __init__(self, pipe: Path) -> None:
        super().__init__()
        self.pipe = pipe
        if not pipe.exists():
            os.mkfifo(pipe)

    @property
    def tracker(self) -> Path:
        """Where lines go."""
        return self.pipe

    @on_main_process
    def store_init_configuration(self, values: dict) -> None:
        """The dashboard does not show these."""

    @on_main_process
    def log(self, values: dict, step: int | None = None, **kwargs: object) -> None:
        """One line."""
        with open(self.pipe, "w") as pipe:
            pipe.write(json.dumps({"step": step, **values}) + "\n")


def main() -> None:
    """Three epochs."""
    torch.manual_seed(0)
    folder = Path(os.environ.get("DASHBOARD", tempfile.mkdtemp()))
    accelerator = Accelerator(cpu=True, log_with=DashboardTracker(folder / "dashboard.pipe"))
    accelerator.init_trackers("grapes", config={"lr": 0.01})
    grapes = torch.randn(900, 9)
    loader = DataLoader(TensorDataset(grapes, grapes.sum(dim=1)), batch_size=10, shuffle=True)
    model = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for _ in range(3):
        for seen, sugar in loader:
            loss = nn.functional.mse_loss(model(seen).squeeze(1), sugar)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 8 == 0:
                accelerator.log({"loss": loss.item()}, step=step)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
