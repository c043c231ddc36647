"""Builds a phrase book of libretti on the main process, then trains a small phrase model on it."""
import re
import time
from collections import Counter

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LINES = ("nessun dorma", "la donna e mobile", "vissi d arte vissi d amore", "che gelida manina", "casta diva",
         "mild und leise", "in fernem land", "largo al factotum", "un bel di vedremo", "e lucevan le stelle")
WORD = re.compile(r"[a-z]+")
MINING_SECONDS = 14.0
VOCABULARY = 256


def libretto(number, generator):
    picks = torch.randint(0, len(LINES), (400,), generator=generator).tolist()
    return f"act {number} " + " ".join(LINES[i] for i in picks)


def mine(seconds):
    """Counts phrases of two to six words, over as many libretti as the time allows."""
    generator = torch.Generator().manual_seed(7)
    phrases, number, end = Counter(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        words = WORD.findall(libretto(number, generator))
        for length in range(2, 7):
            phrases.update(" ".join(words[i:i + length]) for i in range(len(words) - length))
        number += 1
        if len(phrases) > 50_000:
            phrases = Counter(dict(phrases.most_common(20_000)))
    return [phrase for phrase, _ in phrases.most_common(VOCABULARY)], number


class PhraseModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 48)
        self.rnn = nn.GRU(48, 48, batch_first=True)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids[:, :-1]))[0])


def train(accelerator, model, optimizer, loader, name):
    for ids in (batch[0] for batch in loader):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids[:, 1:].flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
    accelerator.print(f"{name}: {mean:.3f}")


def loader_for(ids):
    return DataLoader(TensorDataset(ids), batch_size=8, shuffle=False)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = PhraseModel()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    warm = torch.randint(0, VOCABULARY, (4320, 40))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader_for(warm))
    train(accelerator, model, optimizer, loader, "warm-up on random phrases")
    book = [None]
    if accelerator.is_main_process:
        phrases, number = mine(MINING_SECONDS)
        accelerator.print(f"{len(phrases)} phrases from {number} libretti")
        book = [phrases]
    torch.distributed.broadcast_object_list(book, src=0)
    index = {phrase: i for i, phrase in enumerate(book[0])}
    ids = torch.tensor(list(index.values()))
    songs = ids[torch.randint(0, len(ids), (4320, 40), generator=torch.Generator().manual_seed(1))]
    train(accelerator, model, optimizer, accelerator.prepare(loader_for(songs)), "phrase book")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
