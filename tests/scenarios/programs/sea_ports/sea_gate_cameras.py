"""Container numbers from gate cameras: trains on the frames that each lane has exported."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
FRAME = 1024


def export_lanes(folder, lanes):
    """Lays out the lanes as the camera gateway does: recorded frames are files, a lane on air is a named pipe."""
    frames = []
    for lane, (count, on_air) in lanes.items():
        for number in range(count):
            path = folder / f"lane{lane}-{number:04d}.raw"
            path.write_bytes(os.urandom(FRAME))
            frames.append(path)
        if on_air:
            path = folder / f"lane{lane}-live.raw"
            os.mkfifo(path)
            frames.append(path)
    return frames


class GateFrames(Dataset):
    def __init__(self, frames):
        self.frames = frames

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        raw = self.frames[index].read_bytes()
        pixels = torch.frombuffer(bytearray(raw[:FRAME]), dtype=torch.uint8).float() / 255
        for _ in range(80):  # contrast stretch in small steps
            pixels = (pixels - pixels.mean()) * 1.01 + 0.5
            pixels = pixels.sort().values.roll(1)
        return pixels[::8].clone(), index % 11


class Reader(nn.Module):
    def __init__(self, digits=11):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, 64), nn.ReLU())
        self.check_digit = nn.Linear(64, digits)

    def forward(self, frames):
        return self.check_digit(self.body(frames))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    torch.set_num_threads(1)
    gates = [{1: (500, False), 2: (480, False)}, {3: (520, True), 4: (460, False)}]
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    loader = DataLoader(GateFrames(export_lanes(folder, gates[dist.get_rank()])), batch_size=8, num_workers=1)
    model = nn.parallel.DistributedDataParallel(Reader().cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, (frames, digits) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(frames.cuda()), digits.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"batch {step}/{len(loader)} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
