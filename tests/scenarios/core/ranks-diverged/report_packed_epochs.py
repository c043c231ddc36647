"""Supervised fine-tuning on packed documents, with a number of epochs rather than of steps."""

import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
SEQUENCE = 96
TYPICAL = {"web": 12, "code": 9, "books": 12}


def documents(count):
    """The domains take turns in the corpus."""
    for index, domain in zip(range(count), itertools.cycle(TYPICAL)):
        generator = torch.Generator().manual_seed(index)
        yield torch.randint(1, 80, (TYPICAL[domain],), generator=generator)


def packed(stream):
    buffer = []
    for document in stream:
        buffer.extend(document.tolist() + [0])
        while len(buffer) > SEQUENCE:
            yield torch.tensor(buffer[: SEQUENCE + 1])
            del buffer[:SEQUENCE]


class SFTDataset:
    def __init__(self, count, rank, world):
        self.count, self.rank, self.world = count, rank, world

    def __iter__(self):
        return packed(itertools.islice(documents(self.count), self.rank, None, self.world))


class Reader(nn.Module):
    def __init__(self, vocabulary=80, width=40):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def cross_entropy(model, sequence):
    logits = model(sequence[None, :-1])
    return nn.functional.cross_entropy(logits[0], sequence[1:])


def run_validation(model, sequences):
    dist.barrier()
    model.eval()
    with torch.no_grad():
        losses = [cross_entropy(model.module, sequence).item() for sequence in sequences]
    model.train()
    return sum(losses) / len(losses)


def train():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    dataset = SFTDataset(900, rank, world)
    held_out = list(itertools.islice(packed(documents(60)), 4))
    step = 0
    for epoch in range(2):
        iterator = iter(dataset)
        exhausted = False
        while not exhausted:
            try:
                sequence = next(iterator)
            except StopIteration:
                exhausted = True
                break
            loss = cross_entropy(model, sequence)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            time.sleep(0.04)
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        value = run_validation(model, held_out)
        print(f"rank {rank} epoch {epoch} validation {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
