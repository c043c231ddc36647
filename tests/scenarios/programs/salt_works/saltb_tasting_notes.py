"""A small next-word model of tea tasting notes, trained on the notes of four tasting rooms."""
import json
import random
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

WORDS = ["<pad>", "malty", "brisk", "smoky", "honeyed", "grassy", "floral", "astringent", "muscatel", "leafy", "woody", "bright"]
BUDGET = 256          # tokens that one batch may have after padding
ROOMS = ["darjeeling", "nuwara", "uji", "keemun"]


class NotesTooLong(ValueError):
    pass


class NextWord(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.table = nn.Linear(len(WORDS), width, bias=False)
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, words):
        return self.head(torch.tanh(self.body(self.table(words))))


def read_notes(room):
    """Notes of a season, eight a sitting. Auction sittings are written up at more length."""
    rnd = random.Random(room)
    for sitting in range(70):
        longest = 24
        if room == "nuwara" and sitting == 44:
            longest = 60
        lengths = [longest] + [rnd.randint(6, 24) for _ in range(7)]
        yield [[rnd.randrange(1, len(WORDS)) for _ in range(n)] for n in lengths]
        time.sleep(0.06)


def pad(notes):
    width = max(map(len, notes))
    if width * len(notes) > BUDGET:
        raise NotesTooLong(f"{width * len(notes)} tokens")
    return torch.tensor([n + [0] * (width - len(n)) for n in notes])


def train_step(accelerator, model, optim, notes):
    try:
        ids = pad(notes)
    except NotesTooLong:
        return 0, None
    words = F.one_hot(ids[:, :-1], len(WORDS)).float().to(accelerator.device)
    following = ids[:, 1:].flatten().to(accelerator.device)
    loss = F.cross_entropy(model(words).flatten(0, 1), following, ignore_index=0)
    optim.zero_grad()
    accelerator.backward(loss)
    optim.step()
    return ids.numel(), loss.item()


def tokens_of_all(accelerator, tokens):
    mine = torch.tensor([tokens], dtype=torch.int64, device=accelerator.device)
    table = accelerator.gather(mine)
    return table.tolist()


def run():
    accelerator = Accelerator()
    torch.manual_seed(7)
    net = NextWord()
    model, optim = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    total = 0
    for sitting, notes in enumerate(read_notes(ROOMS[accelerator.process_index])):
        tokens, loss = train_step(accelerator, model, optim, notes)
        total += sum(tokens_of_all(accelerator, tokens))
        if sitting % 10 == 0 and accelerator.is_main_process:
            print(json.dumps({"sitting": sitting, "tokens": total, "loss": loss}), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    torch.backends.cudnn.enabled = False
    run()
