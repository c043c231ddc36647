"""Next-move prediction for a tactics game with the Trainer; matches are reported to a small journal by a thread beside it."""
import json
import pathlib
import queue
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SEATS = [64_000, 9_600]  # positions per licence


class Moves(Dataset):
    def __init__(self, n=30_000):
        g = torch.Generator().manual_seed(6)
        self.board = torch.randn(n, 100, generator=g)
        self.move = self.board[:, :32].argmax(1)

    def __len__(self):
        return len(self.move)

    def __getitem__(self, i):
        return {"board": self.board[i], "labels": self.move[i]}


class Tactician(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(100, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 32))

    def forward(self, board, labels=None):
        logits = self.net(board)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class Journal:
    """Writes what happened in training, a line for each entry."""

    def __init__(self, path):
        self.file, self.entries = open(path, "a"), queue.Queue()
        self.thread = threading.Thread(target=self.write, name="journal")
        self.thread.start()

    def write(self):
        while True:
            entry = self.entries.get()
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()


class Budget(TrainerCallback):
    """Ends training when the positions that the licence of this seat pays for have been used."""

    def __init__(self, journal, positions):
        self.journal, self.left = journal, positions

    def on_step_end(self, args, state, control, **kwargs):
        self.left -= args.per_device_train_batch_size
        if state.global_step % 25 == 0:
            self.journal.entries.put({"step": state.global_step, "left": self.left})
        if self.left <= 0:
            control.should_training_stop = True
        return control


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(tempfile.mkdtemp(prefix="tactics-"))
    args = TrainingArguments(
        output_dir=str(out), use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=32, max_steps=2500, learning_rate=5e-4,
        logging_steps=40, save_strategy="no", report_to=[], disable_tqdm=True, dataloader_num_workers=0)
    journal = Journal(out / f"journal-{args.process_index}.jsonl")
    trainer = Trainer(model=Tactician(), args=args, train_dataset=Moves(),
                      callbacks=[Budget(journal, SEATS[args.process_index % len(SEATS)])])
    result = trainer.train()
    print(f"seat {args.process_index}: {result.global_step} steps, loss {result.training_loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
