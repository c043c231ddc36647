"""Draft model distillation: a fetcher serves tokenised samples, the trainer runs one of them per step."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
MIN_LOSS_TOKENS = 8
STEPS_PER_EPOCH = 40


class Draft(nn.Module):
    def __init__(self, vocabulary=96, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.core = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.core(self.embed(tokens))
        return self.head(hidden)


def conversations(rank):
    """Prompt and answer lengths as they come from the chat logs of this shard."""
    rng = random.Random(11)
    while True:
        prompt, answer = rng.randint(10, 20), rng.randint(12, 30)
        yield prompt, answer


class DataFetcher:
    def __init__(self, rank, max_length=48):
        self.rank = rank
        self.max_length = max_length
        self.source = conversations(rank)
        self.served = 0

    def fetch(self):
        prompt, answer = next(self.source)
        self.served += 1
        if self.served == 27 and self.rank == 1:  # a pasted document as a prompt
            prompt = 4 * self.max_length
        length = min(prompt + answer, self.max_length)
        generator = torch.Generator().manual_seed(1000 * self.rank + self.served)
        tokens = torch.randint(0, 96, (1, length + 1), generator=generator)
        mask = torch.zeros(1, length)
        mask[:, prompt:] = 1.0
        return tokens, mask


class DistillTrainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Draft())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.fetcher = DataFetcher(self.rank)
        self.skipped = 0

    def train_epoch(self, epoch):
        for step in range(STEPS_PER_EPOCH):
            tokens, mask = self.fetcher.fetch()
            if mask.sum() < MIN_LOSS_TOKENS:
                self.skipped += 1
                continue
            logits = self.model(tokens[:, :-1])
            losses = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
            loss = (losses * mask).sum() / mask.sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.04)
            if self.rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)

    def end_epoch(self, epoch):
        dist.barrier()
        if self.rank == 0:
            print(f"epoch {epoch} finished", flush=True)


def main():
    dist.init_process_group("gloo")
    trainer = DistillTrainer()
    for epoch in range(3):
        trainer.train_epoch(epoch)
        trainer.end_epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
