"""Click streams in files; the Trainer's evaluation reads them with a loader of its author's own, some files to each rank.

Accelerate would give every rank as many batches. This loader does not ask it to.
"""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

ITEMS, CLICKS, FILES = 50, 10, 5


class Sessions(IterableDataset):
    """Sessions from a list of files, so many a file."""

    def __init__(self, files, sessions_per_file):
        self.files, self.sessions_per_file = files, sessions_per_file

    def __iter__(self):
        for file in self.files:
            draw = torch.Generator().manual_seed(file)
            for _ in range(self.sessions_per_file):
                clicks = torch.randint(ITEMS, (CLICKS,), generator=draw)
                yield {"clicks": clicks[:-1], "labels": clicks[-1]}


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, 16)
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, clicks, labels=None):
        scores = self.attention(self.items(clicks)).mean(1) @ self.items.weight.T
        return {"loss": nn.functional.cross_entropy(scores, labels), "scores": scores}


class FileTrainer(Trainer):
    def get_eval_dataloader(self, eval_dataset=None):
        files = range(self.args.process_index, FILES, self.args.world_size)
        return DataLoader(Sessions(files, 4), batch_size=self.args.eval_batch_size)


class Steps(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"{arguments.process_index}: {state.global_step}/{state.max_steps}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=options.steps, per_device_train_batch_size=4,
        per_device_eval_batch_size=4, eval_strategy="steps", eval_steps=5, save_strategy="no", logging_steps=100,
        report_to=[], disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = FileTrainer(
        Recommender(),
        arguments,
        train_dataset=Sessions(range(100, 120), 50),
        eval_dataset=Sessions(range(FILES), 4),
        callbacks=[Steps()],
    )
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
