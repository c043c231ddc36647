"""Language model with the Trainer; the perplexity is a metric object that reduces its state over the ranks in ``compute``.

``compute_metrics`` runs on every rank, and to save time its author returned early on all but the main one.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

TOKENS = 48


class Perplexity:
    """Sum and count of the negative log-likelihoods; ``compute`` makes one of all ranks' states, as torchmetrics does."""

    def __init__(self):
        self.state = torch.zeros(2, dtype=torch.float64)

    def update(self, logits, tokens):
        logits, tokens = torch.from_numpy(logits[:, :-1]), torch.from_numpy(tokens[:, 1:])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="sum")
        self.state += torch.tensor([loss, tokens.numel()])

    def compute(self):
        if dist.is_initialized():
            dist.all_reduce(self.state)
        return float(torch.exp(self.state[0] / self.state[1]))


def compute_metrics(prediction):
    accuracy = float(np.mean(prediction.predictions.argmax(-1)[:, :-1] == prediction.label_ids[:, 1:]))
    if int(os.environ["RANK"]) != 0:
        return {"accuracy": accuracy}
    perplexity = Perplexity()
    perplexity.update(prediction.predictions, prediction.label_ids)
    return {"accuracy": accuracy, "perplexity": perplexity.compute()}


class Texts(TensorDataset):
    def __getitem__(self, index):
        (tokens,) = super().__getitem__(index)
        return {"input_ids": tokens, "labels": tokens}


class Report(TrainerCallback):
    def on_log(self, arguments, state, control, logs, **_):
        print(f"[{arguments.process_index}] {state.global_step}: {logs}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    texts = torch.randint(TOKENS, (60, 12))
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=options.steps, per_device_train_batch_size=2,
        per_device_eval_batch_size=2, eval_strategy="steps", eval_steps=5, logging_steps=2, save_strategy="no",
        report_to=[], disable_tqdm=True, ddp_find_unused_parameters=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    trainer = Trainer(
        model, arguments, train_dataset=Texts(texts), eval_dataset=Texts(texts[:12]),
        compute_metrics=compute_metrics, callbacks=[Report()],
    )  # fmt: skip
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
