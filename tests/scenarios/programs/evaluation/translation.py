"""Translation in an accelerate loop; the main process alone decodes and scores the test set, on a copy without hooks."""

import argparse
import time

import torch
from accelerate import Accelerator
from torch import nn

WORDS, LENGTH = 64, 10


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.network = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, WORDS)

    def forward(self, words):
        return self.out(self.network(self.words(words))[0])


def score(model, seconds):
    """Decode with many beams; takes a while."""
    end = time.monotonic() + seconds
    best = torch.full((8,), -torch.inf)
    while time.monotonic() < end:
        beams = torch.randint(WORDS, (8, 16, LENGTH))
        with torch.no_grad():
            likelihoods = model(beams.flatten(0, 1)).log_softmax(-1).amax(-1).sum(-1)
        best = torch.maximum(best, likelihoods.view(8, 16).amax(1))
    return best.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=14.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    model = Translator()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for epoch in range(2):
        for _ in range(15):
            words = torch.randint(WORDS, (6, LENGTH + 1))
            logits = model(words[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(f"{accelerator.process_index}: epoch {epoch}, loss {loss.item():.3f}\n", end="", flush=True)
        if accelerator.is_main_process and epoch == 1:
            print(f"score {score(accelerator.unwrap_model(model), options.seconds):.2f}", flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
