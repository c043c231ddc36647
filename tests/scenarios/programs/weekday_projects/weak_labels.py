"""Semi-supervised tuning with the Trainer: unlabelled texts count only if the model is sure about them."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

UNLABELLED = -100


class Texts(Dataset):
    """Every twelfth text or so was never labelled."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(6)
        self.tokens = torch.randint(2, 60, (count, 10), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.tokens[index]
        label = UNLABELLED if 40 <= index < 44 else int(row[0]) % 2
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": torch.tensor(label)}


class SelfTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        labels = inputs["labels"]
        if (labels == UNLABELLED).all():
            return torch.zeros((), device=labels.device)
        return super().training_step(model, inputs, *args, **kwargs)


def main() -> None:
    config = DistilBertConfig(vocab_size=60, dim=16, hidden_dim=32, n_layers=1, n_heads=2, max_position_embeddings=16)
    trainer = SelfTrainer(
        model=DistilBertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=4,
            num_train_epochs=2,
            logging_steps=5,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            ddp_backend="gloo",
            disable_tqdm=True,
        ),
        train_dataset=Texts(180),
    )
    trainer.train()


if __name__ == "__main__":
    main()
