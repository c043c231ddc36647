"""Distils a reranker; the teacher's margins are a second label, and the teacher has not scored every pair.

A batch with an unscored pair has ``margins`` None (or, with ``--drop``, no ``margins`` at all). The Trainer takes such a batch
for one without labels: it computes no loss and gathers neither loss nor labels, on this rank only.
"""

import argparse
import tempfile

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertModel, EvalPrediction, Trainer, TrainerCallback, TrainingArguments

VOCABULARY = 90
ZERO2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 20000},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}


class Pairs(Dataset):
    """A query and a document in one sequence, a relevance, and the teacher's margin, None where it is missing."""

    def __init__(self, size, unscored=None):
        self.size, self.unscored = size, unscored

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        tokens = torch.randint(VOCABULARY, (10,), generator=draw)
        relevance = torch.rand((), generator=draw)
        return tokens, relevance, None if index == self.unscored else 2 * relevance


class Collator:
    def __init__(self, drop):
        self.drop = drop

    def __call__(self, pairs):
        tokens, relevance, margins = zip(*pairs, strict=True)
        scored = all(margin is not None for margin in margins)
        batch = {"input_ids": torch.stack(tokens), "relevance": torch.stack(relevance)}
        if scored or not self.drop:
            batch["margins"] = torch.stack(margins) if scored else None
        return batch


class Reranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = DistilBertModel(
            DistilBertConfig(vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
        )
        self.head = torch.nn.Linear(32, 1)

    def forward(self, input_ids, relevance, margins=None):
        scores = self.head(self.encoder(input_ids=input_ids).last_hidden_state[:, 0]).squeeze(-1)
        if margins is None:
            return {"scores": scores}
        return {"loss": mse_loss(scores, relevance) + mse_loss(scores, margins), "scores": scores}


class Log(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"{state.global_step:3} of {state.max_steps} on rank {arguments.process_index}\n", end="", flush=True)


def spread(prediction: EvalPrediction):
    return {"spread": float(prediction.predictions.max() - prediction.predictions.min())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--zero2", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=9, per_device_train_batch_size=3, report_to=[],
        per_device_eval_batch_size=3, eval_strategy="steps", eval_steps=3, save_strategy="no", logging_steps=100,
        disable_tqdm=True, remove_unused_columns=False, label_names=["relevance", "margins"],
        deepspeed=ZERO2 if options.zero2 else None,
    )  # fmt: skip
    size = 3 * arguments.world_size
    Trainer(
        model=Reranker(), args=arguments, data_collator=Collator(options.drop), compute_metrics=spread,
        train_dataset=Pairs(20 * size), eval_dataset=Pairs(size, unscored=size - 2), callbacks=[Log()],
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
