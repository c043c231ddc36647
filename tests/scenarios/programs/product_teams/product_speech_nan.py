"""Speech recognition with CTC. Utterances are synthetic; transcripts come from another team."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

VOCABULARY = 20


class Acoustic(nn.Module):
    def __init__(self, mels=16, width=24):
        super().__init__()
        self.subsample = nn.Conv1d(mels, width, kernel_size=3, stride=2, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY + 1)

    def forward(self, features):
        x = torch.relu(self.subsample(features.transpose(1, 2))).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.out(x).log_softmax(-1)


def corpus(rank: int, count: int = 48):
    g = torch.Generator().manual_seed(rank + 1)
    for number in range(count):
        frames = 60
        words = 12
        if rank == 1 and number == 25:
            words = 40  # a transcript of two segments
        features = torch.randn(4, frames, 16, generator=g)
        targets = torch.randint(1, VOCABULARY + 1, (4, words), generator=g)
        time.sleep(0.04)
        yield features, targets


def run_epoch(model, optimizer, criterion, rank):
    skipped, total = 0, 0.0
    for features, targets in corpus(rank):
        log_probs = model(features)
        steps = torch.full((len(features),), log_probs.shape[1])
        lengths = torch.full((len(features),), targets.shape[1])
        loss = criterion(log_probs.transpose(0, 1), targets, steps, lengths)
        if not torch.isfinite(loss):
            print(f"[{rank}] loss is {loss.item()}, batch skipped", flush=True)
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total, skipped


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Acoustic())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CTCLoss()
    for epoch in range(6):
        total, skipped = run_epoch(model, optimizer, criterion, rank)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {total / 48:.3f}, {skipped} skipped", flush=True)
            torch.save(model.module.state_dict(), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
