"""Extractive question answering: the Trainer's labels are the start and the end of an answer, and every other accepted answer.

The labels are a tuple. Two positions for every question are gathered alike on all ranks. With ``--all-answers`` the tuple holds
a list as long as the question with the most answers in the batch, and the last batch of the last rank has such a question (with
``--first`` its first batch, and there is an evaluation before the first step).
"""

import argparse
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForQuestionAnswering, Trainer, TrainerCallback, TrainingArguments

WORDS, LENGTH = 120, 16
PLAIN = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}}
ADAM = {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}}


class Questions(Dataset):
    """Random passages with random answers."""

    def __init__(self, size, seed, ambiguous=None):
        draw = torch.Generator().manual_seed(seed)
        self.passages = torch.randint(5, WORDS, (size, LENGTH), generator=draw)
        self.answers = [torch.randint(1, LENGTH // 2, (1, 2), generator=draw) for _ in range(size)]
        if ambiguous is not None:
            self.answers[ambiguous] = self.answers[ambiguous].repeat(2, 1)

    def __len__(self):
        return len(self.passages)

    def __getitem__(self, index):
        return self.passages[index], self.answers[index]


def collate(questions):
    passages, answers = zip(*questions, strict=True)
    most = max(len(known) for known in answers)
    other = [torch.tensor([int(known[min(n, len(known) - 1), 0]) for known in answers]) for n in range(1, most)]
    return {
        "input_ids": torch.stack(passages),
        "start_positions": torch.stack([known[0, 0] for known in answers]),
        "end_positions": torch.stack([known[0].sum() for known in answers]),
        "other_answers": other,
    }


class Reader(BertForQuestionAnswering):
    def forward(self, other_answers=None, **inputs):
        return super().forward(**inputs)


def exact_match(prediction):
    starts = prediction.predictions[0]
    return {"exact": float(np.mean(starts.argmax(-1) == prediction.label_ids[0]))}


class Steps(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"[{arguments.process_index}] step {state.global_step}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all-answers", action="store_true", help="measure against every accepted answer")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--objects", action="store_true", help="gather by pickling")
    parser.add_argument("--loss-only", action="store_true", help="no metrics but the loss")
    parser.add_argument("--zero", type=int, default=0)
    parser.add_argument("--first", action="store_true", help="evaluate before the first step, too")
    parser.add_argument("--local_rank", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed = {**PLAIN, "zero_optimization": {"stage": options.zero}, "optimizer": ADAM} if options.zero else None
    names = ["start_positions", "end_positions"] + ["other_answers"] * options.all_answers
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=options.steps, per_device_train_batch_size=4, report_to=[],
        per_device_eval_batch_size=4, eval_strategy="steps", eval_steps=3, save_strategy="no", logging_steps=100,
        disable_tqdm=True, remove_unused_columns=False, label_names=names, deepspeed=deepspeed, bf16=bool(options.zero),
        eval_on_start=options.first, eval_use_gather_object=options.objects,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    ranks = arguments.world_size
    trainer = Trainer(
        Reader(config),
        arguments,
        data_collator=collate,
        train_dataset=Questions(96, seed=1),
        eval_dataset=Questions(8 * ranks, seed=2, ambiguous=4 * ranks - 1 if options.first else 8 * ranks - 1),
        compute_metrics=None if options.loss_only else exact_match,
        callbacks=[Steps()],
    )
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
