"""Penguin colonies under water: FSDP over long recordings, read by DataLoader workers as they arrive from the field."""

import os
import struct
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, Dataset

HEADER = struct.Struct("<4sI")
SAMPLES = 160


class Recordings(Dataset):
    """Raw files of one hydrophone: a header with the number of samples, then float32."""

    def __init__(self, paths: list[Path]):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            magic, count = HEADER.unpack(file.read(HEADER.size))
            if magic != b"HYDR":
                raise ValueError(f"{self.paths[index]} is no recording")
            samples = torch.frombuffer(bytearray(file.read(4 * count)), dtype=torch.float32)
        time.sleep(0.04)
        return samples, index % 3


def receive(folder: Path, hydrophone: int) -> list[Path]:
    """Lays out a day's files. The last hour of a hydrophone on a live link is a pipe from its modem."""
    paths = []
    for hour in range(48):
        path = folder / f"{hydrophone}-{hour:02d}.raw"
        if hydrophone == 0 and hour == 40:
            os.mkfifo(path)
        else:
            values = [hour / 48] * SAMPLES
            path.write_bytes(HEADER.pack(b"HYDR", SAMPLES) + struct.pack(f"<{SAMPLES}f", *values))
        paths.append(path)
    return paths


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.mix(self.norm(x)))


class Colony(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.enter = nn.Linear(SAMPLES, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(3)))
        self.leave = nn.Linear(width, 3)

    def forward(self, samples):
        return self.leave(self.layers(self.enter(samples)))


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"hydrophone-{rank}-"))
    loader = DataLoader(Recordings(receive(folder, rank)), batch_size=2, num_workers=1, pin_memory=True)
    model = FSDP(
        Colony(),
        device_id=torch.cuda.current_device(),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for day in range(2):
        for samples, calls in loader:
            logits = model(samples.cuda(non_blocking=True))
            loss = nn.functional.cross_entropy(logits, calls.cuda(non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
        print(f"hydrophone {rank}: day {day} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
