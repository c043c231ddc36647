"""Species from camera-trap clips of the release sites. Decoding is done by workers, which report what they have read (clip,
frames, milliseconds) so that the console can show how the disks do."""
import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

fork = mp.get_context("fork")


class DecodeMonitor:
    def __init__(self, size=1200):
        self.events = fork.Queue(maxsize=size)
        self.clips, self.frames, self.millis = 0, 0, 0.0

    def report(self, clip, frames, millis):
        self.events.put((clip, frames, millis))

    def drain(self):
        while not self.events.empty():
            _, frames, millis = self.events.get()
            self.clips, self.frames, self.millis = self.clips + 1, self.frames + frames, self.millis + millis

    def line(self):
        return f"{self.clips} clips, {self.frames} frames, {self.millis / max(self.clips, 1):.1f} ms each"


class TrapClips(Dataset):
    def __init__(self, site, monitor, clips=6000):
        self.site, self.monitor, self.clips = site, monitor, clips

    def __len__(self):
        return self.clips

    def __getitem__(self, i):
        began = time.perf_counter()
        g = torch.Generator().manual_seed(self.site * 10_000 + i)
        frames = torch.rand(6, 3, 96, 96, generator=g)
        bright = frames.flatten(1).mean(1).argsort()
        clip = torch.nn.functional.avg_pool2d(frames[bright[-4:]], 2).flatten(0, 1)
        self.monitor.report(i, len(frames), 1e3 * (time.perf_counter() - began))
        return clip, i % 9


def net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(12, 24, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(24, 48, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(3), torch.nn.Flatten(), torch.nn.Linear(432, 9))


def console(step, loss, monitor):
    monitor.drain()
    if step % 10 == 0:
        print(f"[{step:4d}] loss {loss:.3f} | {monitor.line()}", flush=True)


def main():
    dist.init_process_group("gloo")
    site = dist.get_rank()
    monitor = DecodeMonitor()
    loader = DataLoader(TrapClips(site, monitor), batch_size=6, num_workers=2, prefetch_factor=2,
                        multiprocessing_context=fork)
    torch.manual_seed(2)
    model = DDP(net())
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for step, (clips, species) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(clips), species)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if site == 0:
            console(step, loss.item(), monitor)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
