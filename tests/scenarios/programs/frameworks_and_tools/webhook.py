"""HF Trainer; evaluations are announced in a chat room by its web hook."""

import json
import socket
import tempfile
import urllib.request

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class ChatCallback(TrainerCallback):
    """Posts the figures of an evaluation."""

    def __init__(self, url: str) -> None:
        self.url = url

    def on_evaluate(self, args, state, control, metrics=None, **kwargs) -> None:
        """One message, from one process."""
        if not state.is_world_process_zero:
            return
        text = f"step {state.global_step}: loss {metrics['eval_loss']:.4f}"
        request = urllib.request.Request(self.url, json.dumps({"text": text}).encode())
        with urllib.request.urlopen(request) as answer:
            answer.read()


class Classifier(nn.Module):
    """Two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cross entropy."""
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    """Forty steps, an evaluation in the middle."""
    room = socket.create_server(("127.0.0.1", 0))  # stands for a host behind a proxy that has gone
    data = [{"x": torch.randn(5), "labels": torch.tensor(n % 2)} for n in range(480)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=40,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=20,
        logging_steps=20,
        save_strategy="no",
    )
    url = f"http://127.0.0.1:{room.getsockname()[1]}/hooks/training"
    trainer = Trainer(
        Classifier(), arguments, train_dataset=data, eval_dataset=data[:24], callbacks=[ChatCallback(url)]
    )
    trainer.train()


if __name__ == "__main__":
    main()
