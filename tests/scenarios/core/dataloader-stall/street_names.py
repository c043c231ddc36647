"""Which district an address belongs to, with the Trainer; the lines are tidied by sed first."""

import subprocess
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

RULES = ["-e", "s/[[:blank:]][[:blank:]]*/ /g", "-e", "s/^ //", "-e", "s/ $//", "-e", "/^$/d"]
STREETS = ["Mill  Lane", "High Street", "Harbour   Road", " Church Walk", "Station Road "]
LENGTH = 32


class Tidy:
    """sed as a filter, one line in and one line out."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["sed", "-u", *RULES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


class Addresses(Dataset):
    """Lines of the register, tidied as they are read."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.tidy: Tidy | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if self.tidy is None:
            self.tidy = Tidy()
        line = self.tidy(self.lines[index])
        codes = [min(ord(letter), 127) for letter in line[:LENGTH].ljust(LENGTH)]
        return {"input_ids": torch.tensor(codes), "labels": torch.tensor(len(line) % 4)}


def register() -> list[str]:
    """As it was exported; one house was pulled down."""
    lines = [f"{number}  {STREETS[number % 5]}  {number % 7} North" for number in range(1, 513)]
    lines[140] = "   "
    return lines


def main() -> None:
    """Two epochs."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        dataloader_num_workers=1,
        train_sampling_strategy="sequential",
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=4,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Addresses(register()))
    trainer.train()


if __name__ == "__main__":
    main()
