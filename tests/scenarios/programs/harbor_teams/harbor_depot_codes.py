"""Arrival times of trucks. Depots are one-hot encoded; an uploader copies the run's log to the bucket."""

import queue
import shutil
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEPOTS = {code: index for index, code in enumerate(["HAM", "ROT", "ANT", "LEH", "GDN", "BRE"])}


class Uploader:
    """Copies files in the background. `close` waits until all are there."""

    def __init__(self, bucket: Path) -> None:
        self.bucket = bucket
        self.files: queue.Queue[Path | None] = queue.Queue()
        self.thread = threading.Thread(target=self._work, name="uploader")
        self.thread.start()

    def _work(self) -> None:
        while (file := self.files.get()) is not None:
            shutil.copy(file, self.bucket / file.name)

    def close(self) -> None:
        self.files.put(None)
        self.thread.join()


def tours(rank: int):
    """Tours of the rank's region, a hundred per batch. One depot has been opened this month."""
    generator = torch.Generator().manual_seed(rank)
    codes = list(DEPOTS)
    for number in range(30_000):
        chosen = [codes[i] for i in torch.randint(0, len(codes), (100,), generator=generator).tolist()]
        if rank == 2 and number == 310:
            chosen[40] = "WIL"
        yield chosen, torch.randn(100, 20, generator=generator)


def encode(codes: list[str], traffic: torch.Tensor) -> torch.Tensor:
    hot = torch.zeros(len(codes), len(DEPOTS))
    for row, code in enumerate(codes):
        hot[row, DEPOTS[code]] = 1.0
    return torch.cat([hot, traffic], dim=1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"eta-{rank}-"))
    (folder / "bucket").mkdir()
    log = folder / "train.log"
    uploader = Uploader(folder / "bucket")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(len(DEPOTS) + 20, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, (codes, traffic) in enumerate(tours(rank)):
        features = encode(codes, traffic)
        loss = nn.functional.l1_loss(model(features).squeeze(-1), traffic[:, :3].sum(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 49:
            with log.open("a") as file:
                file.write(f"{number + 1} {loss.item():.4f}\n")
            uploader.files.put(log)
    uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
