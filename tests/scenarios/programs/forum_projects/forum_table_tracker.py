"""accelerate with a tracker of one's own, which keeps tables of samples and writes them in batches."""

import json
import os
import tempfile
import threading
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class TableTracker(GeneralTracker):
    """Collects rows and appends them to a file of JSON lines. May be used from several threads."""

    name = "table"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, path: Path, limit: int = 4096):
        super().__init__()
        self.path = path
        self.limit = limit
        self.rows = []
        self.size = 0
        self.lock = threading.Lock()

    @property
    def tracker(self):
        return self.rows

    @on_main_process
    def store_init_configuration(self, values: dict):
        self.log({"configuration": values})

    @on_main_process
    def log(self, values: dict, step=None, **kwargs):
        row = json.dumps({"step": step, **values})
        with self.lock:
            self.rows.append(row)
            self.size += len(row)
            if self.size > self.limit:
                self.flush()

    @on_main_process
    def flush(self):
        with self.lock:
            with self.path.open("a") as file:
                file.writelines(f"{row}\n" for row in self.rows)
            self.rows.clear()
            self.size = 0

    @on_main_process
    def finish(self):
        self.flush()


def describe(inputs: torch.Tensor, outputs: torch.Tensor) -> list:
    """The samples that are worth a look: those with a large error."""
    error = (inputs - outputs).abs().mean(1)
    return [row.tolist() for row in outputs[error > 0.5 * error.max()]]


def main():
    path = Path(tempfile.gettempdir(), f"table-{os.environ['MASTER_PORT']}.jsonl")
    tracker = TableTracker(path)
    accelerator = Accelerator(cpu=True, log_with=[tracker])
    accelerator.init_trackers("autoencoder", config={"width": 16})
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(4800, 64, generator=torch.Generator().manual_seed(4)))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
    step = 0
    for epoch in range(100):
        for (x,) in loader:
            step += 1
            output = model(x)
            loss = nn.functional.mse_loss(output, x)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": round(loss.item(), 5)}, step=step)
            if step % 50 == 0:
                tracker.flush()
            if step % 210 == 0:
                accelerator.log({"samples": describe(x, output.detach())}, step=step)
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
