"""Scores prompts with accelerate: each process takes its share, and the scores of a prompt are gathered as they come."""

import time

import torch
from accelerate import Accelerator
from torch import nn


class Scorer(nn.Module):
    def __init__(self, vocabulary=128, width=32):
        super().__init__()
        self.embed, self.encoder, self.out = nn.Embedding(vocabulary, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, 1)

    @torch.no_grad()
    def forward(self, ids):
        _, hidden = self.encoder(self.embed(ids))
        return self.out(hidden[-1])


def tokenize(prompt, vocabulary=128):
    return torch.tensor([[ord(c) % vocabulary for c in prompt]])


def read_prompts(n):
    topics = ["weather", "chess", "the sea", "old maps", "bread", "tides", "glass"]
    return [f"Write {3 + i % 4} lines about {topics[i % len(topics)]}, number {i}" for i in range(n)]


class Scoreboard:
    def __init__(self, accelerator):
        self.accelerator, self.rows = accelerator, []

    def add(self, score):
        self.rows.append(self.accelerator.gather(score.reshape(1)))

    def summary(self):
        scores = torch.cat(self.rows)
        return f"{len(scores)} scores, mean {scores.mean().item():+.4f}"


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    scorer = Scorer().eval()
    for split, size in (("dev", 12), ("test", 25)):
        board = Scoreboard(accelerator)
        with accelerator.split_between_processes(read_prompts(size)) as prompts:
            for prompt in prompts:
                board.add(scorer(tokenize(prompt)))
                time.sleep(0.3)
        accelerator.wait_for_everyone()
        accelerator.print(f"{split}: {board.summary()}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
