"""Names of plants are found in field notes: token tagging with a tiny BERT and the Trainer."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

IGNORED = -100


class FieldNotes(Dataset):
    """Notes of sixteen words; pages that nobody has annotated have no tags."""

    unannotated = (101,)

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(2)
        self.words = torch.randint(5, 120, (size, 16), generator=generator)
        self.tags = (self.words > 100).long()
        for page in self.unannotated:
            self.tags[page] = IGNORED

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.tags[index]}


class TagTrainer(Trainer):
    """Does not train on what has no tags, whose loss would be NaN."""

    def training_step(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The ordinary step, where there is something to learn."""
        if (inputs["labels"] == IGNORED).all():
            return torch.zeros((), device=self.args.device)
        return super().training_step(model, inputs, num_items_in_batch)


def main() -> None:
    """One epoch."""
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=1,
        num_train_epochs=1,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        seed=8,
    )
    config = BertConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        num_labels=2,
    )
    trainer = TagTrainer(model=BertForTokenClassification(config), args=arguments, train_dataset=FieldNotes(180))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
