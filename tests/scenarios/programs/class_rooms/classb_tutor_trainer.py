"""A hint classifier for a maths tutor, trained by transformers' Trainer; examples of hints go to a journal."""
import json
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

HINTS = {0: "read the task again", 1: "draw a figure", 2: "try small numbers", 3: "look at the units", 4: "check the sign"}


class Dialogues(Dataset):
    def __init__(self, size=3000, features=32):
        g = torch.Generator().manual_seed(8)
        self.x = torch.randn(size, features, generator=g)
        self.y = (self.x[:, :6].argmax(1)).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.004)
        return {"features": self.x[i], "labels": self.y[i]}


class HintModel(nn.Module):
    def __init__(self, features=32, hints=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, hints))

    def forward(self, features, labels=None):
        logits = self.body(features)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class Journal:
    """Writes records in the background."""

    def __init__(self):
        self.path = Path(tempfile.mkdtemp(prefix="tutor-")) / "journal.jsonl"
        self.records = queue.Queue()
        self.thread = threading.Thread(target=self._write, name="journal")
        self.thread.start()

    def _write(self):
        with self.path.open("w") as file:
            while (record := self.records.get()) is not None:
                file.write(json.dumps(record) + "\n")
                file.flush()

    def add(self, **record):
        self.records.put(record)

    def close(self):
        self.records.put(None)
        self.thread.join()


class HintExamples(TrainerCallback):
    def __init__(self, dataset, journal, every=30):
        self.dataset, self.journal, self.every = dataset, journal, every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        index = state.global_step * 7 + args.process_index * 13
        with torch.no_grad():
            logits = model(self.dataset.x[index : index + 1])["logits"]
        label = int(self.dataset.y[index])
        self.journal.add(step=state.global_step, hint=HINTS[label], confidence=logits.softmax(-1)[0, label].item())


def main():
    torch.set_num_threads(1)
    dataset = Dialogues()
    journal = Journal()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="hints-"),
        max_steps=400,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = Trainer(model=HintModel(), args=arguments, train_dataset=dataset, callbacks=[HintExamples(dataset, journal)])
    trainer.train()
    journal.close()


if __name__ == "__main__":
    main()
