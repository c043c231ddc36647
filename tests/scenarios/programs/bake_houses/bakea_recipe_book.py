"""Nutrition values from recipe texts: a shared recipe book on disk per kitchen, and a small regressor on top."""
import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

KITCHENS = ("bread", "cake", "praline")
FLOURS = {"550": 3.4, "1050": 5.2, "rye": 8.1, "spelt": 6.0}
GRAMS = {"sugar": 4.0, "butter": 7.2, "milk": 0.6, "yeast": 3.0}
UNITS = {"g": 1.0, "kg": 1000.0, "ml": 1.0}


class RecipeBook:
    """Parsed recipes of one kitchen. Other tools of the kitchen edit the same file."""

    def __init__(self, kitchen):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{kitchen}-"))
        self.file = self.folder / "book.json"
        self.file.write_text("{}")

    @contextlib.contextmanager
    def editing(self):
        fd = os.open(self.folder / "book.lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        book = json.loads(self.file.read_text())
        yield book
        self.file.write_text(json.dumps(book))
        os.close(fd)

    def add(self, number, text):
        with self.editing() as book:
            book[str(number % 50)] = self.parse(text)
            return book[str(number % 50)]

    @staticmethod
    def parse(text):
        values = []
        for part in text.split(", "):
            amount, unit, name = part.split(" ")
            per = FLOURS.get(name) or GRAMS.get(name, 1.0)
            values.append(float(amount) * UNITS[unit] * per / 1000)
        return values


def card(kitchen, number):
    """The text of a recipe card, as the kitchen types it."""
    flour = list(FLOURS)[(number + kitchen) % 4]
    extra = list(GRAMS)[number % 4]
    butter = "2 EL butter" if (kitchen, number) == (2, 48) else f"{40 + number % 7} g butter"
    return f"{500 + 10 * (number % 9)} g {flour}, {20 + number % 5} g {extra}, {butter}"


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(3, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        return self.out(torch.relu(self.scale(x)))


def batch_of(book, kitchen, first, size=4):
    rows = []
    for number in range(first, first + size):
        try:
            rows.append(book.add(number, card(kitchen, number)))
        except KeyError:  # a unit that nobody typed before: use the standard dough
            rows.append([1.7, 0.08, 0.3])
    return torch.tensor(rows)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    kitchen = dist.get_rank()
    book = RecipeBook(KITCHENS[kitchen])
    torch.manual_seed(6)
    model = DDP(Values())
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        time.sleep(0.2)
        x = batch_of(book, kitchen, 4 * step)
        loss = nn.functional.l1_loss(model(x), x.sum(1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"{KITCHENS[kitchen]} step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
