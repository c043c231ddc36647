"""Next-frame model on recorded matches. Loader workers transcode their share of the matches on first use."""
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIDE, MATCHES, WORKERS = 32, 32, 1


class MatchArchive(IterableDataset):
    def __init__(self, folder, rank, effort=0.45):
        self.folder = Path(folder)
        self.rank = rank
        self.effort = effort  # seconds that the encoder may spend on a match

    def render(self, match):
        rng = torch.Generator().manual_seed(1000 * self.rank + match)
        return (255 * torch.rand(24, SIDE * SIDE, generator=rng)).to(torch.uint8)

    def transcode(self, match):
        path = self.folder / f"match_{match:03d}.z"
        if path.exists():
            return path
        frames = self.render(match)
        best, level, started = None, 1, time.monotonic()
        while time.monotonic() - started < self.effort:  # tries filters as long as it may
            filtered = (frames.int() - frames.roll(level, 0).int()).to(torch.uint8)
            data = zlib.compress(filtered.numpy().tobytes(), 1 + level % 9)
            if best is None or len(data) < len(best[1]):
                best = (level, data)
            level = level % 23 + 1
        path.write_bytes(bytes([best[0]]) + zlib.compress(frames.numpy().tobytes(), 6))
        return path

    def __iter__(self):
        info = get_worker_info()
        mine = range(info.id, MATCHES, info.num_workers) if info else range(MATCHES)
        paths = [self.transcode(match) for match in mine]
        for path in paths * 4:
            raw = zlib.decompress(path.read_bytes()[1:])
            frames = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(24, -1).float() / 255
            yield frames[:-1], frames[1:]


class NextFrame(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(SIDE * SIDE, 192, batch_first=True)
        self.out = nn.Linear(192, SIDE * SIDE)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(13)
    model = DDP(NextFrame())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warm = torch.rand(4, 23, SIDE * SIDE)
    for _ in range(30):  # noise first, to settle the scale of the outputs
        optimizer.zero_grad()
        (model(warm) - warm).pow(2).mean().backward()
        optimizer.step()
    with tempfile.TemporaryDirectory(prefix="matches_") as folder:
        for step, (before, after) in enumerate(DataLoader(MatchArchive(folder, rank), batch_size=4, num_workers=WORKERS)):
            loss = (model(before) - after).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 8 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
