"""Fine-tunes a small tagger on radio transcripts with transformers' Trainer and keeps a watch log."""
import queue
import tempfile
import threading
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False

PHRASES = ["STAND BY", "SAY AGAIN", "GO AHEAD CH 67", "RECEIVED", "WAIT ONE", "ROGER", "RADIO CHECK"]


def phrase(number):
    """What the coast station said at this point of the tape (side A ends after 70 calls)."""
    return "OUT" if number % 140 == 70 else PHRASES[number % len(PHRASES)]


class Tape(Dataset):
    def __init__(self, length=6000):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        audio = torch.randn(2048, generator=generator)
        bands = torch.fft.rfft(audio).abs()[:1024].reshape(64, 16).mean(dim=1)
        return {"bands": bands, "labels": torch.tensor(float(index % 2))}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(64, 64)
        self.decide = nn.Linear(64, 1)

    def forward(self, bands, labels=None):
        logits = self.decide(torch.relu(self.encode(bands))).squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        return {"loss": loss, "logits": logits}


class WatchLog:
    """Writes the log of the watch from a thread, a conversation at a time."""

    def __init__(self, path):
        self.lines = queue.Queue(maxsize=12)
        self.path = path
        self.thread = threading.Thread(target=self.keep, name="watch-log", daemon=True)
        self.thread.start()

    def keep(self):
        with self.path.open("w") as out:
            while True:
                step, text = self.lines.get()
                out.write(f"{step:05d} {text}\n")
                if text == "OUT":
                    break

    def enter(self, step, text):
        self.lines.put((step, text))


class LogCallback(TrainerCallback):
    def __init__(self):
        self.watch = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.watch = WatchLog(Path(args.output_dir) / "watch.log")

    def on_step_end(self, args, state, control, **kwargs):
        if self.watch is not None:
            self.watch.enter(state.global_step, phrase(state.global_step))


def main():
    folder = tempfile.mkdtemp(prefix="transcripts-")
    args = TrainingArguments(
        output_dir=folder,
        max_steps=500,
        per_device_train_batch_size=16,
        optim="sgd",
        max_grad_norm=0.0,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(model=Tagger(), args=args, train_dataset=Tape(), callbacks=[LogCallback()])
    trainer.train()
    if trainer.is_world_process_zero():
        print("finished", Path(folder, "watch.log").stat().st_size, "bytes of log", flush=True)


if __name__ == "__main__":
    main()
