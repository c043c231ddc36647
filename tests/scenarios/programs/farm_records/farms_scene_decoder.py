"""Cloud-gap filling on Sentinel-like scenes. Tiles are unpacked by a small decoder program that talks over pipes."""
import subprocess
import sys
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

DECODER = r"""
import random, sys, zlib
out = sys.stdout
for request in sys.stdin:
    scene, tile = map(int, request.split())
    rng = random.Random(scene * 1000 + tile)
    values = bytes(rng.randrange(256) for _ in range(768))
    cloud = 1.0 if (scene, tile) == (13, 21) else rng.random() * 0.9
    if cloud < 0.95:
        out.write(f"OK {cloud:.2f} {zlib.compress(values).hex()}\n")
    else:
        out.write(f"CLOUD {cloud:.2f}")
    out.flush()
"""


class DecoderPipe:
    def __init__(self):
        self.proc = subprocess.Popen([sys.executable, "-c", DECODER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tile(self, scene, tile):
        self.proc.stdin.write(f"{scene} {tile}\n")
        self.proc.stdin.flush()
        status, cloud, *data = self.proc.stdout.readline().split()
        if status != "OK":
            return torch.zeros(3, 16, 16), float(cloud)
        raw = bytearray(zlib.decompress(bytes.fromhex(data[0])))
        return torch.frombuffer(raw, dtype=torch.uint8).view(3, 16, 16).float() / 255, float(cloud)

    def close(self):
        self.proc.stdin.close()
        self.proc.wait()


class Orbit(Dataset):
    """The scenes of one ground track: `scenes` scenes of 32 tiles, every third one on this rank."""

    def __init__(self, rank, world, scenes=90):
        self.items = [(s, t) for s in range(rank, scenes, world) for t in range(32)]
        self.pipe = DecoderPipe()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, cloud = self.pipe.tile(*self.items[i])
        hidden = torch.rand(1, 16, 16) < 0.3 * cloud
        return torch.cat([image.masked_fill(hidden, 0), hidden.float()]), image


def build():
    conv = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())  # noqa: E731
    return nn.Sequential(conv(4, 32), conv(32, 32), conv(32, 32), nn.Conv2d(32, 3, 1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    net = DDP(build())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    orbit = Orbit(rank, world)
    seen = 0
    for masked, truth in DataLoader(orbit, batch_size=2):
        for _ in range(3):  # a few looks at each tile, with jittered brightness
            gain = 0.9 + 0.2 * torch.rand(len(truth), 1, 1, 1)
            loss = (net(torch.cat([masked[:, :3] * gain, masked[:, 3:]], 1)) - truth * gain).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seen += len(truth)
        if rank == 0 and seen % 16 == 0:
            print(f"{seen}/{len(orbit)} tiles, L1 {loss.item():.4f}", flush=True)
    orbit.pipe.close()
    dist.destroy_process_group()
