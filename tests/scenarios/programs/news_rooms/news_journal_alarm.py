"""Comment moderation with transformers' Trainer; decisions go to a journal that is flushed twice a second."""
import collections
import json
import os
import signal
import tempfile
import threading
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import ModelOutput


class Journal:
    """Lines for the moderators. A timer flushes them, so that nobody has to wait for an editor's pace."""

    def __init__(self, path, seconds=0.5):
        self.file = open(path, "w")
        self.lines = collections.deque()
        self.lock = threading.Lock()
        self.flushed = 0
        self.seconds = seconds
        signal.signal(signal.SIGALRM, self.flush)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def add(self, decisions):
        with self.lock:
            for at, (score, words) in enumerate(decisions):
                excerpt = "".join(chr(97 + w % 26) for w in words)
                self.lines.append(json.dumps({"n": self.flushed + at, "score": round(score, 3), "text": excerpt, "key": hash(excerpt) % 9973}))

    def flush(self, *_):
        with self.lock:
            while self.lines:
                self.file.write(self.lines.popleft() + "\n")
                self.flushed += 1
            self.file.flush()
        signal.setitimer(signal.ITIMER_REAL, self.seconds)


class Comments(Dataset):
    def __len__(self):
        return 9600

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(0, 500, (20,), generator=g)
        return {"ids": ids, "labels": (ids % 17 == 0).any().float()}


class Moderator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(500, 64, mode="max")
        self.out = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids, labels):
        logits = self.out(self.embed(ids)).squeeze(-1)
        return ModelOutput(loss=nn.functional.binary_cross_entropy_with_logits(logits, labels), logits=logits)


class Decisions(TrainerCallback):
    """Every few steps the moderator's verdict on some older comments, the main process only."""

    def __init__(self, comments, per_check=1500):
        self.comments, self.per_check, self.journal = comments, per_check, None
        self.at = 0

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.journal = Journal(os.path.join(tempfile.mkdtemp(prefix="moderation-"), "journal.jsonl"))

    def on_step_end(self, args, state, control, model=None, **kwargs):
        time.sleep(0.03)
        if self.journal is None or state.global_step < 40 or state.global_step % 2:
            return
        rows = torch.stack([self.comments[(self.at + k) % len(self.comments)]["ids"] for k in range(16)])
        self.at += 16
        net = getattr(model, "module", model)
        with torch.no_grad():
            scores = net.out(net.embed(rows)).squeeze(-1).sigmoid().tolist()
        pairs = list(zip(scores, rows.tolist()))
        self.journal.add(pairs * (self.per_check // len(pairs)))


if __name__ == "__main__":
    torch.manual_seed(5)
    comments = Comments()
    args = TrainingArguments(
        output_dir="moderation", use_cpu=True, max_steps=1000, per_device_train_batch_size=16, learning_rate=1e-3, logging_steps=50,
        save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
    )
    Trainer(Moderator(), args, train_dataset=comments, callbacks=[Decisions(comments)]).train()
