"""DDP training of a housekeeping predictor straight from CCSDS-like frames."""
import struct
import sys
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHANNELS = 32
FRAMES_PER_STEP = 256
STEPS_PER_ORBIT = 160
ORBITS = 6


class FrameError(ValueError):
    pass


class Recorder:
    """One spacecraft's solid state recorder, played back in order."""

    def __init__(self, spacecraft):
        self.spacecraft = spacecraft
        self.rng = np.random.default_rng(100 + spacecraft)
        self.counter = 0

    def frame(self):
        values = self.rng.standard_normal(CHANNELS + 1).astype("<f4")
        values[-1] = values[:8].sum()
        payload = values.tobytes()
        crc = zlib.crc32(payload)
        self.counter += 1
        if self.spacecraft == 2 and self.counter == 97 * FRAMES_PER_STEP + 12:
            crc ^= 0x40  # single event upset in the buffer
        return struct.pack("<HI", self.spacecraft, crc) + payload

    def block(self):
        return [self.frame() for _ in range(FRAMES_PER_STEP)]


def decode(block):
    rows = []
    for raw in block:
        _, crc = struct.unpack_from("<HI", raw)
        payload = raw[6:]
        if zlib.crc32(payload) != crc:
            raise FrameError(f"bad checksum {crc:#010x}")
        rows.append(np.frombuffer(payload, dtype="<f4"))
    table = torch.from_numpy(np.stack(rows).copy())
    return table[:, :-1], table[:, -1:]


def run_orbit(model, optimizer, recorder):
    seen, total = 0, 0.0
    for _ in range(STEPS_PER_ORBIT):
        block = recorder.block()
        try:
            inputs, target = decode(block)
        except FrameError as error:
            print(f"spacecraft {recorder.spacecraft}: {error}", file=sys.stderr, flush=True)
            continue
        for _ in range(3):  # a few passes of augmentation before the update
            inputs = inputs + 0.001 * torch.fft.fft(inputs, dim=1).real.tanh()
        loss = nn.functional.mse_loss(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(inputs)
        total += loss.item() * len(inputs)
    return torch.tensor([float(seen), total])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(CHANNELS, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    recorder = Recorder(rank)
    for orbit in range(ORBITS):
        mine = run_orbit(model, optimizer, recorder)
        everyone = [torch.zeros(2) for _ in range(world)]
        dist.all_gather(everyone, mine)
        if rank == 0:
            seen, total = torch.stack(everyone).sum(0).tolist()
            print(f"orbit {orbit}: {int(seen)} frames, loss {total / max(seen, 1):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
