"""Trainer that shows samples after each evaluation: the first process writes them by annealed search."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)


class Sequences(Dataset):
    def __init__(self, count: int):
        self.ids = torch.randint(2, 50, (count, 24), generator=torch.Generator().manual_seed(count)).sort(dim=1).values

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"ids": self.ids[index], "labels": self.ids[index]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 50)

    def forward(self, ids, labels=None):
        logits = self.head(self.rnn(self.embed(ids))[0])
        loss = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:])
        return {"loss": loss, "logits": logits[:, -1]}


class ShowSamples(TrainerCallback):
    """The best of many random continuations, by the likelihood that the model gives them."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    @torch.no_grad()
    def search(self, model, prompt):
        best, found, tried, end = float("inf"), None, 0, time.monotonic() + self.seconds
        while time.monotonic() < end:
            ids = torch.cat([prompt, torch.randint(2, 50, (16,)).sort().values])
            loss = model(ids.unsqueeze(0))["loss"].item()
            tried += 1
            if loss < best:
                best, found = loss, ids.tolist()
        return best, found, tried

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if state.is_world_process_zero:
            loss, ids, tried = self.search(model, torch.arange(2, 10))
            print(f"step {state.global_step}: best of {tried}: {loss:.3f} {ids}", flush=True)


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix=f"samples-{os.environ['MASTER_PORT']}-"),
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=160,
        eval_strategy="steps",
        eval_steps=80,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    torch.manual_seed(0)
    Trainer(
        model=Model(), args=args, train_dataset=Sequences(2000), eval_dataset=Sequences(96), callbacks=[ShowSamples(9.0)]
    ).train()


if __name__ == "__main__":
    main()
