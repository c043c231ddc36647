"""Subject headings for catalogue records; optimizer state is spread over the ranks (ZeRO-1)."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

HEADINGS = 40
VOCABULARY = 5000
SAVE_EVERY = 150


def records(rank):
    """Endless stream of (title words, subject headings) as they come out of the union catalogue."""
    g = torch.Generator().manual_seed(rank)
    while True:
        words = torch.randint(0, VOCABULARY, (16, 24), generator=g)
        # tf-idf with a small co-occurrence table
        table = torch.rand(220, 220, generator=g)
        weight = torch.linalg.svdvals(table)[:24]
        yield words, weight / weight.sum(), (torch.rand(16, HEADINGS, generator=g) > 0.9).float()


def build():
    torch.manual_seed(5)
    return torch.nn.ModuleDict({
        "words": torch.nn.EmbeddingBag(VOCABULARY, 16, mode="sum"),
        "head": torch.nn.Linear(16, HEADINGS),
    })


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = build()

    def forward(self, words, weight):
        return self.parts["head"](self.parts["words"](words, per_sample_weights=weight.expand_as(words).contiguous()))


def write(folder, step, model, optimizer):
    if dist.get_rank() == 0:
        optimizer.consolidate_state_dict(to=0)
        path = os.path.join(folder, f"subjects-{step:05d}.pt")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
        print("wrote", path, flush=True)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tagger())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=3e-3)
    folder = tempfile.mkdtemp(prefix="subjects")
    for step, (words, weight, headings) in enumerate(records(dist.get_rank()), start=1):
        loss = F.binary_cross_entropy_with_logits(model(words, weight), headings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % SAVE_EVERY == 0:
            write(folder, step, model, optimizer)
        if step == 600:
            break
    dist.destroy_process_group()


main()
