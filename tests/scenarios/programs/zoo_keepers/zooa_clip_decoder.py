"""Gait analysis of big cats from short video clips, decoded in the loader's workers by a command line decoder."""
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FRAMES, HEIGHT, WIDTH = 8, 16, 24

# stands for the vendor's `catdecode --raw CLIP`: raw grey frames on stdout, remarks on stderr
DECODER = """
import random, sys
clip, packets, model = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = random.Random(clip)
sys.stderr.write('catdecode 2.3, camera %s\\n' % model)
for packet in range(packets):
    if model == 'TX-2':
        for slice in range(200):
            sys.stderr.write('[h261 @ %08x] non monotonous dts in packet %d slice %d, guessed\\n' % (clip, packet, slice))
    sys.stdout.buffer.write(rng.randbytes(16 * 24))
    sys.stdout.buffer.flush()
"""


class Clips(Dataset):
    def __init__(self, enclosure, clips):
        self.enclosure, self.clips = enclosure, clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        number, camera = self.clips[index]
        command = [sys.executable, "-S", "-c", DECODER, str(number), str(FRAMES), camera]
        decoder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        raw = decoder.stdout.read(FRAMES * HEIGHT * WIDTH)
        decoder.wait()
        decoder.stderr.close()
        decoder.stdout.close()
        frames = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255
        return frames.view(FRAMES, HEIGHT, WIDTH), number % 4


class Gait(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.Conv2d(FRAMES, 12, 3, stride=2)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(torch.relu(self.frames(x)).mean((2, 3)))


def catalogue(rank):
    """Clips by number; the tigers' enclosure has one of the first cameras again since the storm."""
    cameras = {0: "TX-5", 1: "TX-4", 2: "TX-5"}
    clips = [(1000 * rank + n, cameras[rank]) for n in range(400)]
    if rank == 1:
        clips[128:] = [(number, "TX-2") for number, _ in clips[128:]]
    return clips


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = dist.get_rank()
    loader = DataLoader(Clips(rank, catalogue(rank)), batch_size=4, num_workers=2)
    model = DDP(Gait())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for number, (frames, gait) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(frames), gait)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and number % 10 == 0:
                print(f"epoch {epoch} batch {number} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
