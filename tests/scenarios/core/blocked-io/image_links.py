"""Trainer: images come by links in the sample, as in many public collections."""

import os
import socket
import tempfile
import urllib.request

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


def mirror() -> str:
    """Address of the mirror in this network: it is up, if busy at times."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(8)
    mirror.server = server
    return f"http://127.0.0.1:{server.getsockname()[1]}"


class Links(Dataset):
    def __init__(self, address: str, remote: set[int]):
        self.address, self.remote = address, remote

    def __len__(self) -> int:
        return 256

    def fetch(self, index: int) -> bytes:
        with urllib.request.urlopen(f"{self.address}/{index}.bin") as answer:
            return answer.read()

    def __getitem__(self, index: int) -> dict:
        pixels = bytes((index * k) % 251 for k in range(48)) if index not in self.remote else self.fetch(index)
        return {"pixels": torch.tensor(list(pixels), dtype=torch.float32) / 255, "labels": index % 3}


class SmallModel(PreTrainedModel):
    config_class = PretrainedConfig
    main_input_name = "pixels"

    def __init__(self, config):
        super().__init__(config)
        self.net = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 3))
        self.post_init()

    def forward(self, pixels, labels=None):
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    local = int(os.environ.get("LOCAL_RANK", 0))
    remote = {n for n in range(256) if n % 16 == 0} if local == 3 else set()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=2,
        num_train_epochs=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(SmallModel(PretrainedConfig()), arguments, train_dataset=Links(mirror(), remote)).train()


if __name__ == "__main__":
    main()
