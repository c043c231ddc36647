"""Fine-tunes a classifier of map legends with transformers' Trainer; checkpoints are mirrored to the vault."""
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False


class Legends(Dataset):
    def __init__(self, count=600):
        generator = torch.Generator().manual_seed(1)
        self.symbols = torch.randn(count, 30, generator=generator)
        self.kinds = torch.randint(0, 6, (count,), generator=generator)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        time.sleep(0.02)
        return {"symbols": self.symbols[index], "labels": self.kinds[index]}


class LegendModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 6))

    def forward(self, symbols, labels=None):
        scores = self.net(symbols)
        wanted = nn.functional.one_hot(labels.cpu(), 6).float().to(scores.device)
        return {"loss": (scores - wanted).square().mean(), "logits": scores}


class VaultMirror(TrainerCallback):
    """Copies the checkpoint and its scans to the vault in pieces, with a checksum for each piece."""

    def __init__(self, vault, pieces=260, piece=256 * 1024):
        self.vault, self.pieces, self.piece = Path(vault), pieces, piece

    def on_save(self, args, state, control, **kwargs):
        if not state.is_world_process_zero or state.global_step >= state.max_steps:
            return
        blob = bytes(range(256)) * (self.piece // 256)
        with (self.vault / f"step-{state.global_step}.img").open("wb") as out:
            for number in range(self.pieces):
                out.write(blob)
                out.flush()
                zlib.crc32(blob, number)
                time.sleep(0.05)
                if number % 52 == 0:
                    print(f"vault: {number} of {self.pieces} pieces", flush=True)


def main():
    folder, vault = tempfile.mkdtemp(prefix="legends-"), tempfile.mkdtemp(prefix="vault-")
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=50,
        per_device_train_batch_size=4,
        save_strategy="steps",
        save_steps=30,
        save_only_model=True,
        logging_steps=10,
        optim="sgd",
        learning_rate=1e-3,
        max_grad_norm=0.0,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(model=LegendModel(), args=arguments, train_dataset=Legends(), callbacks=[VaultMirror(vault)])
    trainer.train()
    for path in (folder, vault):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
