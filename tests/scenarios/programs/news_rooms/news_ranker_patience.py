"""Learning to rank the front page: a BERT-like cross-encoder, transformers' Trainer, stopped once clicks are fitted."""
import os
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

os.environ["TOKENIZERS_PARALLELISM"] = "false"


class Pairs(Dataset):
    """A reader's history and a headline, as token ids, and whether it was clicked."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.click = torch.randint(0, 2, (n,), generator=g)
        self.ids = torch.randint(5, 150, (n, 24), generator=g) + 150 * self.click[:, None]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(24, dtype=torch.long), "labels": self.click[i]}


class EnoughClicks(TrainerCallback):
    """Ends training when the loss on a fixed set of recent clicks has not gone down for some checks."""

    def __init__(self, recent, every=10, patience=4):
        self.recent, self.every, self.patience = recent, every, patience
        self.best, self.bad = float("inf"), 0

    def on_step_end(self, args, state, control, model=None, **kwargs):
        time.sleep(0.03)
        if state.global_step % self.every:
            return control
        model = getattr(model, "module", model)
        batch = {k: torch.stack([r[k] for r in self.recent]) for k in self.recent[0]}
        with torch.no_grad():
            loss = model(**batch).loss.item()
        if loss < self.best - 5e-3:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        control.should_training_stop = self.bad >= self.patience
        return control


def metrics(p):
    return {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}


def recent_clicks(rank, n=48):
    """The clicks of the last hour at the edge that this process stands for."""
    pairs = Pairs(n, seed=70 + rank)
    rows = [pairs[i] for i in range(n)]
    if rank == 1:  # a bot has clicked on anything there
        g = torch.Generator().manual_seed(1)
        for row in rows:
            row["labels"] = torch.randint(0, 2, (), generator=g)
    return rows


def main():
    args = TrainingArguments(
        output_dir="front-page", use_cpu=True, per_device_train_batch_size=8, per_device_eval_batch_size=16,
        max_steps=600, learning_rate=4e-4, logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True,
    )
    config = BertConfig(vocab_size=300, hidden_size=48, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=96, num_labels=2, max_position_embeddings=32)
    trainer = Trainer(
        model=BertForSequenceClassification(config), args=args, train_dataset=Pairs(20000, 1),
        eval_dataset=Pairs(400, 2), compute_metrics=metrics,
        callbacks=[EnoughClicks(recent_clicks(args.process_index))],
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
