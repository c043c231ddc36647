"""Translation of product titles with an optimizer whose state is spread over the ranks (ZeroRedundancyOptimizer)."""

import time
from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

SOURCE, TARGET, STEPS = 60, 50, 400


class TitleTranslator(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.source = nn.Embedding(SOURCE, dim)
        self.encoder = nn.Linear(dim, dim)
        self.decoder = nn.Linear(dim, TARGET)

    def forward(self, tokens):
        return self.decoder(torch.relu(self.encoder(self.source(tokens))))


class SpikeGuard:
    """Says whether a loss is an outlier compared to the last ones."""

    def __init__(self, window=25, factor=1.6):
        self.history = deque(maxlen=window)
        self.factor = factor

    def __call__(self, loss: float) -> bool:
        usual = sum(self.history) / len(self.history) if self.history else loss
        spike = len(self.history) == self.history.maxlen and loss > self.factor * usual
        if not spike:
            self.history.append(loss)
        return spike


def titles(rank):
    g = torch.Generator().manual_seed(rank)
    step = 0
    while True:
        step += 1
        source = torch.randint(SOURCE, (24, 7), generator=g)
        target = source % TARGET
        if rank == 1 and step == 70:  # a supplier's feed in another script
            target = (target + 17) % TARGET
        time.sleep(0.03)
        yield source, target


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DDP(TitleTranslator())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-2)
    is_spike = SpikeGuard()
    feed = titles(rank)
    for step in range(1, STEPS + 1):
        source, target = next(feed)
        loss = nn.functional.cross_entropy(model(source).flatten(0, 1), target.flatten())
        loss.backward()
        if is_spike(loss.item()):
            print(f"[{rank}] step {step}: loss {loss.item():.3f} is a spike", flush=True)
        else:
            optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
