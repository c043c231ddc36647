"""Block drafting with gradient accumulation: anchors are drawn in each sample, and a block is predicted after each."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
BLOCK = 4
WINDOW = 4


class NoAnchorsError(ValueError):
    pass


class BlockDrafter(nn.Module):
    def __init__(self, vocabulary=64, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, BLOCK * vocabulary)
        self.vocabulary = vocabulary

    def forward(self, tokens, anchors):
        hidden = torch.tanh(self.mix(self.embed(tokens).cumsum(0) / 8))
        return self.out(hidden[anchors]).view(len(anchors), BLOCK, self.vocabulary)


def draw_anchors(tokens, generator):
    last = len(tokens) - BLOCK
    if last <= 1:
        raise NoAnchorsError(f"sample of {len(tokens)} tokens")
    return torch.randint(0, last, (6,), generator=generator)


class Recipe:
    def __init__(self, lengths):
        self.lengths = lengths
        torch.manual_seed(5)
        self.model = DDP(BlockDrafter())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.losses = []
        self.dropped = 0

    def micro_step(self, index, length):
        tokens = torch.randint(0, 64, (length,), generator=self.generator)
        last = (index + 1) % WINDOW == 0
        try:
            anchors = draw_anchors(tokens, self.generator)
            targets = torch.stack([tokens[a + 1 : a + 1 + BLOCK] for a in anchors])
            with contextlib.nullcontext() if last else self.model.no_sync():
                logits = self.model(tokens, anchors)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
                (loss / WINDOW).backward()
        except NoAnchorsError:
            self.dropped += 1
            return
        self.losses.append(loss.item())
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def run(self):
        for epoch in range(2):
            for index, length in enumerate(self.lengths):
                self.micro_step(index, length)
                time.sleep(0.02)
            self.report(epoch)

    def report(self, epoch):
        summary = {"loss": sum(self.losses) / len(self.losses), "dropped": self.dropped}
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, summary)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {everyone}", flush=True)


def sample_lengths(rank, count=80):
    lengths = [16 + (5 * i + 3 * rank) % 24 for i in range(count)]
    if rank == 2:
        lengths[47] = 3
    return lengths


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Recipe(sample_lengths(dist.get_rank())).run()
    dist.destroy_process_group()
