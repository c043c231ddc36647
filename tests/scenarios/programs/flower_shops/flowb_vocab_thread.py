"""Product texts: language model per shop language; the word lists are exchanged while training goes on."""
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS = {0: 300, 1: 900_000, 2: 300}  # shop 1 also sells the marketplace's articles


def fingerprint(shop):
    digest = hashlib.sha256()
    for number in range(WORDS[shop]):
        digest.update(f"{shop}:{number}:seam".encode())
    return digest.hexdigest()


def exchange(shop):
    mine = fingerprint(shop)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (shop, mine))
    return everyone


class TextModel(nn.Module):
    def __init__(self, words=128):
        super().__init__()
        self.embed = nn.Embedding(words, 16)
        self.out = nn.Linear(16, words)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def articles(shop):
    generator = torch.Generator().manual_seed(shop)
    while True:
        time.sleep(0.06)
        yield torch.randint(0, 128, (8, 13), generator=generator)


def main():
    dist.init_process_group("gloo")
    shop = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TextModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    side = ThreadPoolExecutor(1, thread_name_prefix="exchange")
    lists = None
    for step, tokens in enumerate(articles(shop)):
        if step == 120:
            break
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if lists is not None and lists.done():
            print(f"shop {shop}: {len(lists.result())} lists at step {step}", flush=True)
            lists = None
        if step == 40:
            lists = side.submit(exchange, shop)
    side.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
