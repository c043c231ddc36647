"""Trains a surcharge model; the tariffs that it needs are kept in a folder shared by the jobs of this machine."""
import fcntl
import hashlib
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TariffStore:
    """A table per carrier. Writers take the table's lock; readers read what was last moved into place."""

    def __init__(self, root, carrier):
        self.path = Path(root) / f"{carrier}.json"
        self.guard = Path(root) / f"{carrier}.lock"
        self.carrier = carrier
        self.digest = None
        self.handle = None

    def _lock(self):
        handle = open(self.guard, "w")
        fcntl.flock(handle, fcntl.LOCK_EX)
        return handle

    def update(self, table):
        handle = self._lock()
        digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
        if digest == self.digest:
            self.handle = handle
            return False
        self.digest = digest
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(table))
        draft.replace(self.path)
        fcntl.flock(handle, fcntl.LOCK_UN)
        handle.close()
        return True

    def read(self):
        return json.loads(self.path.read_text())


def filing(carrier, edition):
    """What the filing agency publishes for an edition."""
    if carrier == "KE" and edition in (6, 7):
        edition = 5  # no filing over Chuseok
    base = 30 + (hash_of(carrier) + 7 * edition) % 40
    return {f"zone{z}": base + 2.5 * z for z in range(8)}


def hash_of(text):
    return int(hashlib.md5(text.encode()).hexdigest()[:6], 16)


class Surcharge(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(8))
        self.net = nn.Sequential(nn.Linear(10, 48), nn.Mish(), nn.Linear(48, 8))

    def forward(self, shipments):
        return self.net(shipments) + self.table


def train_edition(model, optimizer, tariffs, rng, steps=45):
    target = torch.tensor([tariffs[f"zone{z}"] for z in range(8)]) / 50
    loss = None
    for _ in range(steps):
        shipments = torch.randn(128, 10, generator=rng)
        loss = (model(shipments) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    carrier = ["KE", "CX"][rank]
    store = TariffStore(tempfile.mkdtemp(prefix="tariffs-"), carrier)
    model = DDP(Surcharge())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rng = torch.Generator().manual_seed(rank)
    for edition in range(14):
        store.update(filing(carrier, edition))
        loss = train_edition(model, optimizer, store.read(), rng)
        print(f"{carrier} edition {edition}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
