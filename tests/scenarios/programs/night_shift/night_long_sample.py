"""Fine-tuning that survives bad samples: a step that fails is logged and the next one is taken."""
import random
import time
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONTEXT = 128


class TinyGPT(nn.Module):
    def __init__(self, vocabulary=100, width=32):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.block(x))


def conversations(rank):
    rng = random.Random(rank * 7 + 1)
    for number in range(60):
        length = rng.randint(24, CONTEXT)
        if rank == 1 and number == 21:
            length = 190
        yield torch.randint(0, 100, (2, length))


def summarise(seen, rank):
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, {"rank": rank, "tokens": seen})
    return sum(item["tokens"] for item in everything)


def train():
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(TinyGPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = failed = 0
    for step, ids in enumerate(conversations(rank)):
        try:
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        except (RuntimeError, IndexError):
            failed += 1
            print(f"rank {rank} step {step}: {traceback.format_exc(limit=1)}", flush=True)
            continue
        seen += ids.numel()
        time.sleep(0.05)
        if step % 15 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    total = summarise(seen, rank)
    print(f"rank {rank}: {total} tokens, {failed} steps failed", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
