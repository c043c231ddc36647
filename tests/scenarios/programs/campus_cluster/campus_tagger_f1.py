"""Part-of-speech tagger for a low-resource treebank (LING 530, final project), with accelerate."""

import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TAGS, WORDS, LENGTH = 7, 200, 12


@dataclass
class Config:
    epochs: int = 8
    batch_size: int = 8
    lr: float = 5e-3
    evaluate_every: int = 30


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        self.encoder = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(48, TAGS)

    def forward(self, tokens):
        return self.tags(self.encoder(self.words(tokens))[0])


def treebank(sentences: int, seed: int) -> TensorDataset:
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, WORDS, (sentences, LENGTH), generator=rng)
    return TensorDataset(tokens, (tokens * 5 + tokens.roll(1, 1)) % TAGS)


def macro_f1(predicted: torch.Tensor, gold: torch.Tensor) -> float:
    scores = []
    for tag in range(TAGS):
        hit = ((predicted == tag) & (gold == tag)).sum().item()
        seen = (predicted == tag).sum().item() + (gold == tag).sum().item()
        scores.append(2 * hit / seen if seen else 0.0)
    return sum(scores) / TAGS


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader, step: int) -> None:
    model.eval()
    predicted, gold = [], []
    for tokens, tags in loader:
        predicted.append(model(tokens).argmax(-1))
        gold.append(tags)
    if accelerator.is_main_process:
        everything = accelerator.gather_for_metrics((torch.cat(predicted), torch.cat(gold)))
        accelerator.print(f"step {step}: macro F1 {macro_f1(*everything):.3f}", flush=True)
    model.train()


def main(config: Config) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    train = DataLoader(treebank(1200, 1), batch_size=config.batch_size, shuffle=True, drop_last=True)
    dev = DataLoader(treebank(96, 2), batch_size=config.batch_size)
    model, optimizer, train, dev = accelerator.prepare(model, optimizer, train, dev)
    step = 0
    for _ in range(config.epochs):
        for tokens, tags in train:
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.04)
            step += 1
            if step % config.evaluate_every == 0:
                evaluate(accelerator, model, dev, step)
    accelerator.end_training()


if __name__ == "__main__":
    main(Config())
