"""Trainer: insurance claims, token by token. Some claims carry weights for words that were marked by two people."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

WORDS = 16


class Claims(Dataset):
    def __init__(self, count, unmarked=None):
        self.count, self.unmarked = count, unmarked

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        claim = {
            "input_ids": torch.randint(5, 150, (WORDS,), generator=gen),
            "labels": torch.randint(0, 3, (WORDS,), generator=gen),
        }
        if self.unmarked is None or index % 12 not in self.unmarked:
            claim["word_weights"] = torch.rand(WORDS, generator=gen)
        return claim


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        inputs = dict(inputs)
        weights = inputs.pop("word_weights", None)
        outputs = model(**inputs)
        logits = outputs.logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, inputs["labels"].flatten(), reduction="none")
        loss = loss.mean() if weights is None else (loss * weights.flatten()).mean()
        return (loss, outputs) if return_outputs else loss


def main():
    config = BertConfig(
        vocab_size=160,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=WORDS,
        num_labels=3,
    )
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=20,
        eval_strategy="steps",
        eval_steps=10,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        label_names=["labels", "word_weights"],
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = WeightedTrainer(
        model=BertForTokenClassification(config),
        args=args,
        train_dataset=Claims(400),
        eval_dataset=Claims(72, unmarked=(4, 5, 6, 7)),
    )
    trainer.train()


if __name__ == "__main__":
    main()
