"""Sorting of returned bottles: one inspection line per process, contrastive embedding by mould number."""
import os
import time
from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
BOTTLES, MOULDS, BATCH = 420, 24, 12


class InspectionLine(Dataset):
    """Silhouettes of the bottles of one shift, with the mould number read from the heel code."""

    def __init__(self, line: int):
        self.moulds = [self._mould(line, i) for i in range(BOTTLES)]

    @staticmethod
    def _mould(line: int, i: int) -> int:
        if line == 1 and i % 3 == 0:  # this line gets the brewery's crates
            return 7
        return i % MOULDS

    def __len__(self):
        return len(self.moulds)

    def __getitem__(self, i):
        angles = torch.linspace(0, 6.28, 64)
        outline = torch.sin(angles * (1 + self.moulds[i])) + 0.1 * torch.cos(angles * i)
        return outline, self.moulds[i]


class OneOfEachMould:
    """Batches in which every mould occurs once, so that all other rows are negatives."""

    def __init__(self, moulds, size):
        self.moulds, self.size = moulds, size

    def __len__(self):
        return len(self.moulds) // self.size

    def __iter__(self):
        waiting = deque(range(len(self.moulds)))
        while waiting:
            batch, seen, later = [], set(), deque()
            while waiting and len(batch) < self.size:
                i = waiting.popleft()
                if self.moulds[i] in seen:
                    later.append(i)
                else:
                    seen.add(self.moulds[i])
                    batch.append(i)
            if len(batch) < self.size:
                return
            waiting.extendleft(reversed(later))
            yield batch


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, outline):
        return nn.functional.normalize(self.layers(outline), dim=-1)


def contrastive(a, b):
    scores = a @ b.T / 0.1
    return (scores.logsumexp(1) - scores.diagonal()).mean()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    line = InspectionLine(rank)
    loader = DataLoader(line, batch_sampler=OneOfEachMould(line.moulds, BATCH))
    model = DDP(Embedder().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    handled = 0
    for step, (outlines, moulds) in enumerate(loader):
        outlines = outlines.cuda()
        pair = model(torch.cat([outlines, outlines.flip(1)]))
        loss = contrastive(pair[:BATCH], pair[BATCH:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        handled += len(moulds)
        time.sleep(0.08)  # belt speed
        if step % 4 == 0:
            value = loss.item()
            if rank == 0:
                print(f"batch {step}/{len(loader)} loss {value:.3f}", flush=True)

    shift = [None] * dist.get_world_size()
    dist.all_gather_object(shift, {"line": rank, "handled": handled})
    if rank == 0:
        print("shift report", shift, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
