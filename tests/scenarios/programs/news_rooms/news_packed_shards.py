"""Continued pre-training of a small language model on the archive: every process reads its own year files and packs them."""
import logging
import math
import time
from typing import Iterator

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from transformers import GPT2Config, GPT2LMHeadModel

logger = get_logger(__name__)
YEARS = list(range(1996, 2009))


class YearFile:
    """One year of the archive. Articles are of any length, as in print."""

    def __init__(self, year: int, words: int = 2400, vocabulary: int = 400):
        self.year, self.words, self.vocabulary = year, words, vocabulary

    def articles(self) -> Iterator[list[int]]:
        g = torch.Generator().manual_seed(self.year)
        left = self.words
        while left > 0:
            n = min(left, int(torch.randint(20, 160, (1,), generator=g)))
            left -= n
            yield torch.randint(1, self.vocabulary, (n,), generator=g).tolist()


def packed(files: list[YearFile], block: int, batch: int) -> Iterator[torch.Tensor]:
    """Articles one after another, cut into blocks; a rest that fills no batch is left out."""
    tokens: list[int] = []
    need = block * batch
    for file in files:
        for article in file.articles():
            tokens += article + [0]
            while len(tokens) >= need:
                yield torch.tensor(tokens[:need]).view(batch, block)
                tokens = tokens[need:]


def main():
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=400, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer = accelerator.prepare(model, optimizer)

    mine = [YearFile(y) for y in YEARS[accelerator.process_index :: accelerator.num_processes]]
    logger.info(f"years {[f.year for f in mine]}")
    seen, began = 0, time.perf_counter()
    for step, ids in enumerate(packed(mine, block=64, batch=4), 1):
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        seen += ids.numel()
        time.sleep(0.04)
        if step % 10 == 0:
            logger.info(f"step {step} perplexity {math.exp(loss.item()):.1f} at {seen / (time.perf_counter() - began):.0f} tokens/s")

    accelerator.wait_for_everyone()
    total = accelerator.reduce(torch.tensor(seen), "sum")
    logger.info(f"{int(total)} tokens in all")


if __name__ == "__main__":
    main()
