"""Invoices with the Trainer: each word of a scanned page is one of nine kinds."""

import logging
import tempfile
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

logger = logging.getLogger(__name__)
TOKEN_LIMIT = 1200
KINDS = 9


class Pages(Dataset):
    """Pages as numbers of words; some delivery lists run over many lines."""

    def __init__(self, count: int, lists: dict[int, int]) -> None:
        self.count, self.lists = count, lists

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        length = self.lists.get(index, int(torch.randint(24, 64, (), generator=generator)))
        return torch.randint(1, 500, (length,), generator=generator)


def collate(pages: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Up to the longest of the batch."""
    words = nn.utils.rnn.pad_sequence(pages, batch_first=True)
    labels = (words % KINDS).masked_fill(words == 0, -100)
    return {"input_ids": words, "attention_mask": (words != 0).long(), "labels": labels}


class FieldTrainer(Trainer):
    """Keeps within the memory of the smaller cards."""

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One batch, if it fits."""
        tokens = inputs["input_ids"].numel()
        if tokens > TOKEN_LIMIT:
            logger.warning("no room for a batch of %d tokens", tokens)
            return torch.tensor(0.0)
        return super().training_step(model, inputs, num_items_in_batch)


def main() -> None:
    """Two epochs."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=1e-3,
        train_sampling_strategy="sequential",
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=500,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=KINDS,
    )
    model = BertForTokenClassification(config)
    trainer = FieldTrainer(model, arguments, train_dataset=Pages(360, lists={117: 380}), data_collator=collate)
    trainer.train()


if __name__ == "__main__":
    main()
