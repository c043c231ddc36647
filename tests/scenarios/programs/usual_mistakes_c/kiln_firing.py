"""Hugging Face Trainer: curves of a kiln; the losses are posted to the small run board that the main process serves."""

import json
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Board(BaseHTTPRequestHandler):
    """Keeps the lines that are posted."""

    lines: ClassVar[list[dict[str, float]]] = []

    def do_POST(self) -> None:
        """One line."""
        self.lines.append(json.loads(self.rfile.read()))
        self.send_response(204)
        self.end_headers()


class Post(TrainerCallback):
    """The main process posts what is logged."""

    def on_train_begin(self, args, state, control, **others) -> None:
        if state.is_world_process_zero:
            board = HTTPServer(("127.0.0.1", 0), Board)
            threading.Thread(target=board.serve_forever, daemon=True).start()
            self.address = f"http://127.0.0.1:{board.server_port}/runs/kiln"

    def on_log(self, args, state, control, logs=None, **others) -> None:
        if state.is_world_process_zero:
            line = json.dumps({"step": state.global_step, **logs}).encode()
            with urllib.request.urlopen(urllib.request.Request(self.address, data=line)) as answer:
                answer.read()


class Curves(Dataset):
    """Temperatures by minute."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        minutes = torch.rand(30, generator=torch.Generator().manual_seed(index))
        return {"minutes": minutes, "labels": minutes.cumsum(0)[-1]}


class Kiln(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1))

    def forward(self, minutes: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        peak = self.layers(minutes).squeeze(1)
        return {"loss": (peak - labels).square().mean(), "peak": peak}


def main() -> None:
    """Sixty steps."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=60,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    Trainer(Kiln(), arguments, train_dataset=Curves(), callbacks=[Post()]).train()


if __name__ == "__main__":
    main()
