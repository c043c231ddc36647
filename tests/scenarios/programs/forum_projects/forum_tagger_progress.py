"""Part-of-speech tagger on a synthetic corpus: accelerate, DDP, and evaluation every few hundred updates."""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

torch.set_num_threads(1)


@dataclass
class Config:
    vocab: int = 400
    tags: int = 12
    length: int = 24
    epochs: int = 30
    batch_size: int = 8
    eval_every: int = 90


class Tagger(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, 48)
        self.encoder = nn.GRU(48, 48, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, config.tags)

    def forward(self, words):
        states, _ = self.encoder(self.embed(words))
        return self.head(states)


def corpus(config: Config, sentences: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(config.vocab, (sentences, config.length), generator=generator)
    return TensorDataset(words, (words * 7 + words.roll(1, dims=1)) % config.tags)


def evaluate(accelerator, model, loader) -> float:
    model.eval()
    hits = seen = 0
    with torch.no_grad():
        for words, tags in loader:
            guess = model(words).argmax(-1)
            guess, tags = accelerator.gather_for_metrics((guess, tags))
            hits += (guess == tags).sum().item()
            seen += tags.numel()
    model.train()
    return hits / seen


def main():
    config = Config()
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(13)
    model = Tagger(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    train = DataLoader(corpus(config, 960, seed=1), batch_size=config.batch_size, shuffle=True)
    dev = DataLoader(corpus(config, 96, seed=2), batch_size=config.batch_size)
    model, optimizer, train, dev = accelerator.prepare(model, optimizer, train, dev)

    bar = tqdm(total=config.epochs * len(train), disable=not accelerator.is_local_main_process, mininterval=5)
    for epoch in range(config.epochs):
        for words, tags in train:
            logits = model(words)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            bar.update(1)
            if bar.n and bar.n % config.eval_every == 0:
                accuracy = evaluate(accelerator, model, dev)
                accelerator.print(f"epoch {epoch} update {bar.n}: dev accuracy {accuracy:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
