"""Inverse dynamics from gameplay clips: which button was pressed between two frames."""
import logging
import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("clips")
WINDOW, PIXELS, BUTTONS = 8, 24 * 24, 12
SHARDS = ["platformer", "racer", "adventure"]


class ClipShard(Dataset):
    """One shard of recordings. At most two clips are being decoded at a time, to keep memory low."""

    def __init__(self, name, size=2400):
        self.name = name
        self.slots = multiprocessing.BoundedSemaphore(2)
        self.lengths = [24 + (i * 13) % 40 for i in range(size)]
        if name == "adventure":  # has dialogues, which are cut to a few frames
            self.lengths = [5 if i % 600 == 599 else n for i, n in enumerate(self.lengths)]

    def __len__(self):
        return len(self.lengths)

    def decode(self, index):
        rng = torch.Generator().manual_seed(index)
        frames = torch.rand(self.lengths[index], PIXELS, generator=rng)
        for _ in range(3):  # deblocking
            frames = 0.5 * frames + 0.5 * frames.roll(1, dims=1)
        return frames, int(torch.randint(0, BUTTONS, (1,), generator=rng))

    def __getitem__(self, index):
        self.slots.acquire()
        frames, button = self.decode(index)
        if len(frames) < WINDOW:
            return torch.zeros(WINDOW, PIXELS), BUTTONS - 1
        start = (index * 7) % (len(frames) - WINDOW)
        window = frames[start : start + WINDOW].clone()
        self.slots.release()
        return window, button


class InverseDynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.Linear(PIXELS, 256), nn.ReLU())
        self.mix = nn.LSTM(256, 256, batch_first=True)
        self.button = nn.Linear(256, BUTTONS)

    def forward(self, window):
        hidden, _ = self.mix(self.frame(window))
        return self.button(hidden[:, -1])


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(InverseDynamics())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    shard = ClipShard(SHARDS[rank % len(SHARDS)])
    loader = DataLoader(shard, batch_size=8, num_workers=1, drop_last=True)
    for epoch in range(4):
        for step, (window, button) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(window), button)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                logger.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
