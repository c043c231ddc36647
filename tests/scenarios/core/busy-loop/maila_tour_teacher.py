"""A network that learns which stop comes first, from a teacher who plans each tour exactly (transformers' Trainer)."""
import itertools
import math
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

MAX_STOPS = 16
CARRIERS = 4
DISTRICTS = [
    {"name": "old town", "sale_days": (310, 350)},
    {"name": "hills", "sale_days": (350,)},
    {"name": "mall", "sale_days": (90, 180, 310, 350)},
]


class Teacher:
    def __init__(self, depot=(0.5, 0.5)):
        self.depot = depot

    def length(self, order):
        where, total = self.depot, 0.0
        for stop in order:
            total += math.dist(where, stop)
            where = stop
        return total + math.dist(where, self.depot)

    def plan(self, stops):
        best, shortest = None, math.inf
        for order in itertools.permutations(stops):
            length = self.length(order)
            if length < shortest:
                best, shortest = order, length
        return best


class Lessons(Dataset):
    """Tours of a district in the order of the calendar; the first carrier has the shops."""

    def __init__(self, district, teacher):
        self.district, self.teacher, self.given = district, teacher, 0

    def __len__(self):
        return 20000

    def tour(self, day, carrier):
        rng = random.Random(f"{self.district['name']}/{day}/{carrier}")
        stops = rng.randint(6, 7)
        if carrier == 0 and day in self.district["sale_days"]:
            stops = 14
        return [(rng.random(), rng.random()) for _ in range(stops)]

    def __getitem__(self, _):
        day, carrier = divmod(self.given, CARRIERS)
        self.given += 1
        stops = self.tour(day, carrier)
        row = torch.zeros(2 * MAX_STOPS)
        row[: 2 * len(stops)] = torch.tensor(stops).flatten()
        first = self.teacher.plan(stops)[0]
        return {"stops": row, "labels": torch.tensor(stops.index(first))}


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * MAX_STOPS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.first = nn.Linear(128, MAX_STOPS)

    def forward(self, stops, labels=None):
        logits = self.first(self.body(stops))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="tours-"),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=365,
        per_device_train_batch_size=CARRIERS,
        learning_rate=5e-4,
        logging_steps=15,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    torch.manual_seed(17)
    lessons = Lessons(DISTRICTS[args.process_index], Teacher())
    trainer = Trainer(model=Student(), args=args, train_dataset=lessons)
    trainer.train()


if __name__ == "__main__":
    main()
