"""Handwritten music (OMR): every epoch a child process distorts the pages, a thread keeps the diary."""

import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

fork = multiprocessing.get_context("fork")


class Diary:
    """Lines are kept in memory; flushing copies them to the home directory, which is slow in the afternoon."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, []
        self.lock = threading.Lock()

    def note(self, text: str) -> None:
        with self.lock:
            self.lines.append(f"{os.getpid()} {text}")

    def flush(self) -> None:
        with self.lock:
            with self.path.open("a") as file:
                for line in self.lines:
                    file.write(line + "\n")
                    file.flush()
                    time.sleep(0.02)
            self.lines.clear()

    def flush_soon(self) -> threading.Thread:
        thread = threading.Thread(target=self.flush, name="diary")
        thread.start()
        return thread


def distort(diary: Diary, source: Path, target: Path, seed: int) -> None:
    pages = torch.load(source, weights_only=True)
    rng = torch.Generator().manual_seed(seed)
    noisy = pages["staves"] + 0.2 * torch.randn(pages["staves"].shape, generator=rng)
    torch.save({"staves": noisy, "clef": pages["clef"]}, target)
    diary.note(f"distorted {len(noisy)} staves with seed {seed}")


def augment(diary: Diary, folder: Path, epoch: int) -> dict:
    target = folder / f"epoch{epoch}.pt"
    child = fork.Process(target=distort, args=(diary, folder / "pages.pt", target, epoch))
    child.start()
    child.join()
    return torch.load(target, weights_only=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"omr-{os.environ['MASTER_PORT']}", f"rank{rank}")
    folder.mkdir(parents=True, exist_ok=True)
    rng = torch.Generator().manual_seed(rank)
    clef = torch.randint(0, 3, (96,), generator=rng)
    torch.save({"staves": torch.randn(96, 10, generator=rng) + clef.unsqueeze(1), "clef": clef}, folder / "pages.pt")
    diary = Diary(folder / "diary.txt")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(40):
        pages = augment(diary, folder, epoch)
        for staves, clefs in zip(pages["staves"].split(8), pages["clef"].split(8)):
            loss = nn.functional.cross_entropy(model(staves), clefs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.note(f"epoch {epoch} loss {loss.item():.4f}")
            time.sleep(0.05)
        if rank == 1 and epoch == 3:  # the others flush at the end, there is less to tell
            diary.flush_soon()
            time.sleep(0.1)
    diary.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
