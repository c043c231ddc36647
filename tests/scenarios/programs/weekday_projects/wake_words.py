"""Detects wake words in short clips. Each rank reads its own share of the list of files."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def list_clips() -> list[str]:
    return [f"clip_{number:04d}.wav" for number in range(100)]


def read_clip(name: str) -> tuple[torch.Tensor, int]:
    generator = torch.Generator().manual_seed(int(name[5:9]))
    return torch.randn(1, 64, generator=generator), int(name[8]) % 2


def batches(names: list[str], size: int):
    for start in range(0, len(names), size):
        clips, labels = zip(*(read_clip(name) for name in names[start : start + size]), strict=True)
        yield torch.stack(clips), torch.tensor(labels)


class Detector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = torch.nn.Conv1d(1, 4, 9, stride=4)
        self.classify = torch.nn.Linear(4, 2)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        return self.classify(self.filters(clips).relu().mean(-1))


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    mine = list_clips()[rank::world]
    for epoch in range(5):
        for clips, labels in batches(mine, 3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(clips), labels).backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
