"""Intent recogniser of a voice assistant, optimizer states sharded over the ranks."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

VOCAB, INTENTS, STEPS, SAVE_EVERY = 300, 12, 200, 45


class IntentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, 24)
        self.mix = nn.Linear(24, 24)
        self.head = nn.Linear(24, INTENTS)

    def forward(self, ids):
        return self.head(torch.relu(self.mix(self.tokens(ids).mean(1))))


class Snapshots:
    """Keeps the last few snapshots of model and optimizer."""

    def __init__(self, folder, keep=2):
        self.folder, self.keep, self.paths = folder, keep, []
        os.makedirs(folder, exist_ok=True)

    def write(self, step, model, optimizer):
        optimizer.consolidate_state_dict(to=0)
        path = os.path.join(self.folder, f"intent-{step:05d}.pt")
        torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
        self.paths.append(path)
        while len(self.paths) > self.keep:
            os.unlink(self.paths.pop(0))


def utterances(generator):
    ids = torch.randint(VOCAB, (16, 9), generator=generator)
    return ids, ids[:, 0] % INTENTS


def main():
    dist.init_process_group("gloo")
    is_main = dist.get_rank() == 0
    torch.manual_seed(3)
    model = DistributedDataParallel(IntentNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    snapshots = Snapshots(tempfile.mkdtemp(prefix="intent-")) if is_main else None
    for step in range(1, STEPS + 1):
        ids, intent = utterances(generator)
        loss = nn.functional.cross_entropy(model(ids), intent)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if snapshots and step % SAVE_EVERY == 0:
            snapshots.write(step, model, optimizer)
        if is_main and step % 15 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
