"""Trains the pruning adviser and, once in the middle, puts together the release for the tablets in the field."""
import gzip
import hashlib
import io
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

log = logging.getLogger("release")


class Adviser(nn.Module):
    def __init__(self, canes=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(canes, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU())
        self.keep = nn.Linear(192, canes)

    def forward(self, x):
        return self.keep(self.trunk(x))


class Release:
    """Weights at several precisions, each packed hard (the tablets have little room) and safe on disk before the next."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.sums = {}

    def _pack(self, blob, level=9, seconds=0.9):
        # several gzip headers give different sizes; the smallest within the time is kept
        best, end, salt = None, time.monotonic() + seconds, 0
        while best is None or time.monotonic() < end:
            packed = gzip.compress(blob, compresslevel=level - salt % 3, mtime=salt)
            best = packed if best is None or len(packed) < len(best) else best
            salt += 1
        return best

    def add(self, name, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        packed = self._pack(buffer.getvalue())
        with open(self.folder / f"{name}.pt.gz", "wb") as out:
            out.write(packed)
            out.flush()
            os.fsync(out.fileno())
        self.sums[name] = hashlib.sha256(packed).hexdigest()

    def close(self):
        lines = [f"{digest}  {name}.pt.gz" for name, digest in sorted(self.sums.items())]
        (self.folder / "SHA256SUMS").write_text("\n".join(lines))


def publish(model, varieties=("riesling", "silvaner", "furmint", "kadarka", "blaufrankisch")):
    release = Release(tempfile.mkdtemp(prefix="release-"))
    for variety in varieties:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            release.add(f"{variety}-{str(dtype)[6:]}", {k: v.to(dtype) for k, v in model.state_dict().items()})
    release.close()
    log.info("%d files in %s", len(release.sums), release.folder)


def season(accelerator, model, optimizer, days):
    for day in range(days):
        vines = torch.rand(32, 24)
        loss = nn.functional.binary_cross_entropy_with_logits(model(vines), (vines > 0.6).float())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if day % 200 == 0:
            accelerator.print(f"day {day}: {loss.item():.4f}")


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = Adviser()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    season(accelerator, model, optimizer, 700)
    if accelerator.is_main_process:
        publish(accelerator.unwrap_model(model))
    accelerator.wait_for_everyone()
    season(accelerator, model, optimizer, 500)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
