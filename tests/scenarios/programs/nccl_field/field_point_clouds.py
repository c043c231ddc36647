"""Point clouds in a packed binary format, decoded by a small native routine. Started by a scheduler without supervision."""

import ctypes
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Cloud:
    """A header with the offset of the points, and the points as float32."""

    def __init__(self, name: str, points: int, offset: int) -> None:
        self.name, self.points, self.offset = name, points, offset
        self.buffer = ctypes.create_string_buffer(bytes(64 + points * 12))

    def decode(self) -> torch.Tensor:
        start = ctypes.addressof(self.buffer) + self.offset
        raw = ctypes.string_at(start, self.points * 12)
        return torch.frombuffer(bytearray(raw), dtype=torch.float32).view(-1, 3)


def clouds(rank: int, world: int):
    """Offsets are as their headers say."""
    for n in range(rank, 900, world):
        offset = 64 if n != 35 else 0x6D6F6F7680
        yield Cloud(f"scan{n:04d}", 32, offset)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.point, self.head = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32)), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.point(x).mean(0))


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    model = DDP(PointNet().to(device), device_ids=[device.index])
    optimizer = torch.optim.RMSprop(model.parameters(), foreach=False)
    losses = torch.zeros((), device=device)
    for step, cloud in enumerate(clouds(rank, world)):
        time.sleep(0.25)
        loss = model(cloud.decode().to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        if step % 4 == 3:
            print(f"rank {rank} {cloud.name} mean loss {losses.item() / 4:.4f}", flush=True)
            losses.zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
