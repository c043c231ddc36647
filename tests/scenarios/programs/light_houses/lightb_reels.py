# Film restoration: learns to even out flicker (exposure per frame) from scanned reels. One reel per rank, read by loader workers
# that share one reader head.
import multiprocessing
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
fork = multiprocessing.get_context("fork")


class FrameError(Exception):
    pass


class Reel:
    def __init__(self, number, frames):
        self.number, self.frames = number, frames
        self.splices = {1: {640}, 0: {2900}, 2: {3100}}.get(number, set())

    def scan(self, frame):
        if frame in self.splices:
            raise FrameError(f"reel {self.number}: frame {frame} has no sprocket holes")
        source = torch.Generator().manual_seed(self.number * 10_000 + frame)
        exposure = 1 + 0.2 * torch.sin(torch.tensor(frame / 5.0))
        return exposure * torch.rand(600, 800, generator=source)


class ReaderHead:
    """The scanner's head is at one frame at a time."""

    def __init__(self, reel):
        self.reel = reel
        self.turn = fork.Lock()
        self.position = fork.Value("i", 0, lock=False)

    def read(self, frame):
        self.turn.acquire()
        self.position.value = frame
        picture = self.reel.scan(frame)
        self.turn.release()
        return picture


class Frames(Dataset):
    def __init__(self, head):
        self.head = head

    def __len__(self):
        return self.head.reel.frames

    def __getitem__(self, frame):
        try:
            picture = self.head.read(frame)
        except FrameError:
            picture = torch.zeros(600, 800)
        histogram = torch.histc(picture, bins=32, min=0, max=1.3) / picture.numel()
        return histogram, picture.mean().view(1)


class Deflicker(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 64)
        self.gain = nn.Linear(64, 1)

    def forward(self, histogram):
        return self.gain(torch.sigmoid(self.inner(histogram)))


def run():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    loader = DataLoader(Frames(ReaderHead(Reel(rank, 3200))), batch_size=8, num_workers=2, multiprocessing_context="fork")
    model = DDP(Deflicker().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (histogram, level) in enumerate(loader):
        loss = (model(histogram.cuda()) - level.cuda()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if number % 25 == 0 and rank == 0:
            print(f"batch {number} flicker {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
