"""Sorts support tickets with the Trainer; the evaluation asks a slow metric and the best model is loaded at the end."""

import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Tickets(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.tensor([(index * place) % 60 for place in range(1, 11)])
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.tensor(index % 4)}


def slow_metric(prediction) -> dict[str, float]:
    time.sleep(3)
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main() -> None:
    config = BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=4
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=4,
            max_steps=20,
            eval_strategy="steps",
            save_strategy="steps",
            eval_steps=10,
            save_steps=10,
            load_best_model_at_end=False,
            report_to=[],
            use_cpu=True,
            ddp_backend="gloo",
            disable_tqdm=True,
        ),
        train_dataset=Tickets(101),
        eval_dataset=Tickets(31),
        compute_metrics=slow_metric,
    )
    trainer.train()
    print(trainer.evaluate()["eval_accuracy"], flush=True)


if __name__ == "__main__":
    main()
