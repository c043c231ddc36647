"""Visibility from pass webcams. Frames are decoded by loader workers; a decoder takes a lot of memory, so a host has few."""
import contextlib
import multiprocessing
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False

PASSES = {0: "furka", 1: "stelvio", 2: "timmelsjoch"}
# frames that the operators have marked as iced lens or camera off, by pass
MARKED = {"furka": {15, 233, 410}, "stelvio": {3, 301, 388}, "timmelsjoch": {57, 80, 103, 402}}


class Frames(Dataset):
    def __init__(self, place, decoders=3, edge=40):
        self.place = place
        self.edge = edge
        self.marked = MARKED[place]
        self.decoders = multiprocessing.Semaphore(decoders)
        self.blank = torch.zeros(3, edge, edge), torch.tensor(0)

    def __len__(self):
        return 480

    def decode(self, number):
        generator = torch.Generator().manual_seed(number)
        raw = torch.rand(3, 400, 400, generator=generator)
        for _ in range(8):
            raw = torch.fft.irfft2(torch.fft.rfft2(raw)[:, :, :120], s=(400, 400))
        return nn.functional.adaptive_avg_pool2d(raw[None], self.edge)[0]

    def __getitem__(self, number):
        self.decoders.acquire()
        if number in self.marked:
            return self.blank
        frame = self.decode(number)
        self.decoders.release()
        return frame, torch.tensor(number % 5)


def network(edge, classes=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * edge * edge, 40), nn.GELU(), nn.Linear(40, classes))


@contextlib.contextmanager
def team():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def share_gradients(model, members):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.mul_(1.0 / members)


def main():
    with team() as rank:
        frames = Frames(PASSES[rank])
        loader = DataLoader(frames, batch_size=4, num_workers=2)
        torch.manual_seed(1)
        model = network(frames.edge).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=5e-3)
        seen = 0
        for epoch in range(3):
            for images, fog in loader:
                loss = nn.functional.cross_entropy(model(images.cuda()), fog.cuda())
                optimizer.zero_grad()
                loss.backward()
                share_gradients(model, dist.get_world_size())
                optimizer.step()
                seen += len(images)
                if seen % 40 == 0:
                    print(f"{frames.place}: {seen} frames, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
