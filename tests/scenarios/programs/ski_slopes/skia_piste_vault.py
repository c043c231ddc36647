"""Piste condition model: one camera per process, snapshots in a vault that all of them share."""
import gzip
import io
import logging
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
DECAY = {"Sonnenhang": 0.004, "Waldabfahrt": 0.005, "Gletscher": 0.014}


class Camera:
    def __init__(self, name: str):
        self.name, self.sharpness = name, 1.0
        self.log = logging.getLogger(name)

    def grab(self, n: int = 48):
        self.sharpness -= DECAY[self.name]
        pixels = torch.rand(n, 3, 24, 24)
        for _ in range(100):
            pixels = nn.functional.avg_pool2d(pixels, 3, 1, 1)
        return pixels.flatten(1), (pixels.mean(dim=(1, 2, 3)) > 0.33).long()

    def focus(self) -> None:
        """Drives the lens once through its range; every position needs a moment to settle."""
        scores = []
        for position in range(40):
            time.sleep(0.06)
            scores.append(float(torch.rand(64, 64).std()) * (1 - abs(position - 19) / 40))
        self.sharpness = 1.0
        self.log.info("focus at position %d", scores.index(max(scores)))


class Vault:
    """Snapshots by tag. A tag is written once; who finds it there leaves it alone."""

    def __init__(self, root: Path, rank: int):
        self.root, self.rank = root, rank

    def _write(self, target: Path, state: dict) -> None:
        raw = io.BytesIO()
        torch.save(state, raw)
        partial = target.with_suffix(".part")
        with gzip.open(partial, "wb", compresslevel=9) as out:
            for start in range(0, len(raw.getvalue()), 1 << 16):
                out.write(raw.getvalue()[start : start + (1 << 16)])
        time.sleep(0.5)  # the share needs a while until a new file is listed
        partial.rename(target)

    def store(self, tag: str, model: nn.Module) -> bool:
        target = self.root / f"{tag}.pt.gz"
        if target.exists():
            return False
        if self.rank == 0:
            self._write(target, model.state_dict())
        dist.barrier()
        return True


def shared_root(rank: int) -> Path:
    box = [tempfile.mkdtemp(prefix="piste-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return Path(box[0])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    camera = Camera(list(DECAY)[rank])
    vault = Vault(shared_root(rank), rank)
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(3 * 24 * 24, 32), nn.GELU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, 401):
        x, y = camera.grab()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            camera.log.info("step %d loss %.4f", step, loss.item())
            if camera.sharpness < 0.5:
                camera.focus()
            vault.store(f"step{step:05d}", model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
