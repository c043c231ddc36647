"""Weather emulator, DDP with batch norm; batches with a loss that is not finite are left out."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Emulator(nn.Module):
    def __init__(self, variables=6):
        super().__init__()
        self.encode = nn.Conv2d(variables, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.decode = nn.Conv2d(12, variables, 3, padding=1)

    def forward(self, state):
        return state + self.decode(torch.relu(self.norm(self.encode(state))))


class Fields:
    """Six-hourly states; a few archives have gaps, filled with the missing value."""

    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        for hour in range(0, 24 * 6, 6):
            state = torch.randn(2, 6, 16, 16)
            target = state.roll(1, -1)
            if self.rank == 1 and hour == 60:
                target[0, 3] = math.nan
            yield state, target


class Trainer:
    def __init__(self, check_every=1):
        self.rank = dist.get_rank()
        self.model = DDP(Emulator(), broadcast_buffers=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.skipped = 0

    def batch(self, state, target):
        loss = nn.functional.l1_loss(self.model(state), target)
        if not torch.isfinite(loss):
            self.skipped += 1
            print(f"rank {self.rank}: non-finite loss, batch left out\n", end="", flush=True)
            return None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def epoch(self, number):
        losses = [x for x in (self.batch(*b) for b in Fields(self.rank)) if x is not None]
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, {"loss": sum(losses) / len(losses), "skipped": self.skipped})
        if self.rank == 0:
            print(f"epoch {number}", [round(e["loss"], 3) for e in everywhere], flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    trainer = Trainer()
    for number in range(3):
        trainer.epoch(number)
    dist.destroy_process_group()
