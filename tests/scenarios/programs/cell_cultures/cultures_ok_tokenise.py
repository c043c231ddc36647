"""Trainer on protein families: the main process tokenises and caches them first, the others read what it wrote."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)
ALPHABET = "ACDEFGHIKLMNPQRSTVWY"


def families(count):
    for number in range(count):
        yield "".join(ALPHABET[(number * 3 + k * k) % 20] for k in range(60)), number % 2


def tokenise(sequence, rounds=40_000):
    """Byte pairs, merged one at a time, as the original implementation has it."""
    tokens = [ALPHABET.index(residue) for residue in sequence]
    for merge in range(rounds):
        pair = merge % 20, (merge * 7) % 20
        for i in range(len(tokens) - 1):
            if (tokens[i], tokens[i + 1]) == pair:
                break
    return tokens[:48]


class Families(Dataset):
    def __init__(self, path, count=96, seconds=9.0):
        if not os.path.exists(path):
            end, rows = time.monotonic() + seconds, []
            for sequence, label in families(count):
                late = time.monotonic() > end
                rows.append((tokenise(sequence, 10 if late else 40_000), label))
            torch.save(rows, path + ".tmp")
            os.replace(path + ".tmp", path)
        self.rows = torch.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        tokens, label = self.rows[index]
        time.sleep(0.01)
        return {"tokens": torch.tensor(tokens), "labels": torch.tensor(label)}


class FamilyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 16), nn.Linear(16, 2)

    def forward(self, tokens, labels):
        logits = self.out(self.embed(tokens).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    folder = os.path.join(tempfile.gettempdir(), f"families-{os.environ.get('MASTER_PORT', '0')}")
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
    )
    with arguments.main_process_first(desc="tokenising families"):
        dataset = Families(folder + "-tokens.pt")
    Trainer(model=FamilyModel(), args=arguments, train_dataset=dataset).train()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
