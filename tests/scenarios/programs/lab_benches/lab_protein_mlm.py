"""Masked language model over amino acids; gradients are averaged by hand in one flat buffer."""

import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("protein")

ALPHABET = "ACDEFGHIKLMNPQRSTVWY"
MASK, LENGTH = len(ALPHABET), 32


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET) + 1, width)
        self.mix = nn.Conv1d(width, width, 7, padding=3)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        return self.head(torch.relu(self.mix(x)).transpose(1, 2))


class Families:
    """Fragments of protein families. Low-complexity ones are rare, and mask poorly."""

    def __init__(self, rank, size):
        self.generator = torch.Generator().manual_seed(rank + 17)
        self.tokens = torch.randint(len(ALPHABET), (size, LENGTH), generator=self.generator)
        self.p_mask = torch.full((size,), 0.15)
        if rank == 1:
            self.p_mask[52 * 4 : 53 * 4] = 0.0

    def batches(self, size=4):
        for start in range(0, len(self.tokens), size):
            time.sleep(0.03)
            tokens = self.tokens[start : start + size]
            masked = torch.rand(tokens.shape, generator=self.generator) < self.p_mask[start : start + size, None]
            yield torch.where(masked, MASK, tokens), tokens, masked


def average_gradients(parameters):
    flat = parameters_to_vector([p.grad for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    grads = [torch.empty_like(p) for p in parameters]
    vector_to_parameters(flat, grads)
    for p, g in zip(parameters, grads):
        p.grad = g


def epoch(model, optimizer, data, number):
    total = count = 0
    for step, (inputs, targets, masked) in enumerate(data.batches()):
        logits = model(inputs)
        loss = F.cross_entropy(logits[masked], targets[masked])
        if not torch.isfinite(loss):
            log.warning("epoch %d, step %d: loss is %s, batch skipped", number, step, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        average_gradients(list(model.parameters()))
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / count


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Families(rank, size=4 * 80)
    for number in range(3):
        mean = epoch(model, optimizer, data, number)
        report = [None] * dist.get_world_size()
        dist.all_gather_object(report, {"rank": rank, "loss": mean})
        if rank == 0:
            log.info("epoch %d: %s", number, report)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
