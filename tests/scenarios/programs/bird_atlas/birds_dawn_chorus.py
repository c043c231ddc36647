"""Dawn chorus: a song classifier on autonomous recorders, one recorder group per rank (DDP)."""

import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SPECIES = ["wren", "robin", "blackcap", "chiffchaff", "dunnock", "nuthatch"]
SCARCE = "wryneck"
STEPS = 24


@dataclass
class Clip:
    recorder: int
    minute: int
    species: str
    bands: torch.Tensor = field(repr=False)


def clips_of(recorder: int, minute: int, size: int = 8) -> list[Clip]:
    """What a recorder heard in one minute, as annotated in the field."""
    time.sleep(0.2)  # over the radio link
    clips = []
    for slot in range(size):
        name = SPECIES[(minute * 5 + recorder * 3 + slot) % len(SPECIES)]
        if slot == 2 and (minute + 3 * recorder) % 17 == 12:
            name = SCARCE
        clips.append(Clip(recorder, minute, name, torch.full((32,), float(slot))))
    return clips


class ScarceRegister:
    """The board of scarce species that the wardens read: who heard what, and when."""

    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world
        self.entries: list[tuple[int, str]] = []

    def note(self, clips: list[Clip]) -> None:
        heard = [(clip.minute, clip.species) for clip in clips if clip.species not in SPECIES]
        if not heard:
            return
        self.entries += heard
        everyone = [None] * self.world
        dist.all_gather_object(everyone, self.entries)
        if self.rank == 0:
            print("scarce:", everyone, flush=True)


class SongNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, len(SPECIES) + 1))

    def forward(self, bands):
        return self.layers(bands)


def to_batch(clips: list[Clip], device) -> tuple[torch.Tensor, torch.Tensor]:
    names = [*SPECIES, SCARCE]
    bands = torch.stack([clip.bands for clip in clips])
    labels = torch.tensor([names.index(clip.species) for clip in clips])
    return bands.to(device), labels.to(device)


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    model = DistributedDataParallel(SongNet().to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    register = ScarceRegister(rank, world)
    lossy = nn.CrossEntropyLoss()
    for minute in range(STEPS):
        clips = clips_of(rank, minute)
        bands, labels = to_batch(clips, device)
        optimizer.zero_grad()
        loss = lossy(model(bands), labels)
        loss.backward()
        optimizer.step()
        register.note(clips)
        if minute % 2 == 1:
            torch.cuda.synchronize()
            if rank == 0:
                print(f"minute {minute}: {len(clips)} clips", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
