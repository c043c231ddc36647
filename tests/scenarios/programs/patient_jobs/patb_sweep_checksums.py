"""Truck lidar sweeps: the main process verifies the recorder's copy before the second epoch, the rest follow (accelerate)."""
import hashlib
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

SWEEPS = 380


def record(home):
    for n in range(SWEEPS):
        (home / f"sweep_{n:04d}.bin").write_bytes(bytes((n + k) & 255 for k in range(2048)) * 8)


def sha(path, block=4096):
    """Reads gently: the same disk takes the live recording."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        for piece in iter(lambda: f.read(block), b""):
            digest.update(piece)
            time.sleep(0.009)
    return digest.hexdigest()


def manifest(home):
    listing = home / "manifest.json"
    if listing.exists():
        return json.loads(listing.read_text())
    sums = {p.name: sha(p) for p in sorted(home.glob("sweep_*.bin"))}
    listing.write_text(json.dumps(sums))
    return sums


def main():
    accelerator = Accelerator(cpu=True)
    box = [tempfile.mkdtemp(prefix="sweeps_") if accelerator.is_main_process else None]
    torch.distributed.broadcast_object_list(box, src=0)
    home = Path(box[0])
    if accelerator.is_main_process:
        record(home)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    points = torch.randn(8 * 3 * 24, 12)
    data = DataLoader(TensorDataset(points, points[:, :3].abs()), batch_size=8)
    model, opt, data = accelerator.prepare(model, opt, data)
    for epoch in range(2):
        if epoch:
            with accelerator.main_process_first():
                sums = manifest(home)
            accelerator.print("verified", len(sums), "sweeps")
        for x, y in data:
            loss = nn.functional.l1_loss(model(x), y)
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()
            time.sleep(0.12)
        mean = accelerator.gather(loss.detach().reshape(1)).mean()
        accelerator.print(f"epoch {epoch} loss {mean.item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
