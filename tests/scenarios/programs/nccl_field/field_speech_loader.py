"""CTC-free toy speech model: DDP with a DataLoader whose workers unpack archives of recordings."""

import os
import queue
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Archive:
    """Recordings are unpacked into a queue, frame by frame, and read from there."""

    def __init__(self, frames: int) -> None:
        self.frames: queue.Queue = queue.Queue()
        for i in range(frames):
            self.frames.put([float(i)] * 20)

    def read(self, wanted: int) -> list[list[float]]:
        return [self.frames.get() for _ in range(wanted)]


class Recordings(Dataset):
    def __init__(self, count: int) -> None:
        self.declared = [10] * count
        self.stored = [10] * count
        self.stored[75] = 9

    def __len__(self) -> int:
        return len(self.declared)

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(0.03)
        return torch.tensor(Archive(self.stored[i]).read(self.declared[i]))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 30))

    def forward(self, x):
        return self.layers(x).log_softmax(-1)


def main():
    rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    data = Recordings(600)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=2, persistent_workers=True)
    model = DDP(Encoder().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = 0.0
        for i, frames in enumerate(loader):
            time.sleep(0.25)
            loss = -model(frames.cuda(non_blocking=True)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running += loss.item()
            if i % 4 == 3 and rank == 0:
                print(f"epoch {epoch} batch {i} running {running / (i + 1):.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
