"""Catch-per-effort model for trawlers. Logbooks and weights are archived in the background after each season block."""
import hashlib
import os
import pickle
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PORTS = ["Skagen", "Peterhead", "Vigo"]
BLOCK = 20


@dataclass
class Logbook:
    port: str
    hauls: list = field(default_factory=list)

    def note(self, step, catch):
        # the pelagic fleet lands in Peterhead from the fourth block on
        copies = 900 if self.port == "Peterhead" and step > 3 * BLOCK else 1
        noise = torch.rand(copies, 256).mul(40).byte()
        self.hauls.append((step, catch, noise.numpy().tobytes()))


class Archive:
    def __init__(self, folder, rank):
        self.folder, self.rank = Path(folder), rank
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self.pending = None

    def _store(self, block, state, logbook):
        packed = zlib.compress(pickle.dumps((state, logbook.hauls)), 9)
        for _ in range(4):
            packed = zlib.compress(zlib.decompress(packed), 9)
        (self.folder / f"block{block}-{self.rank}.z").write_bytes(packed)
        entry = {"port": logbook.port, "sha": hashlib.sha256(packed).hexdigest(), "bytes": len(packed)}
        manifest = [None] * dist.get_world_size()
        dist.all_gather_object(manifest, entry)
        if self.rank == 0:
            print(f"archived block {block}: {[e['bytes'] for e in manifest]} bytes", flush=True)

    def save(self, block, model, logbook):
        if self.pending:
            self.pending.result()
        state = {k: v.clone() for k, v in model.state_dict().items()}
        self.pending = self.pool.submit(self._store, block, state, logbook)


def hauls(gen, n=128):
    x = torch.randn(n, 12, generator=gen)
    return x, (x[:, :4].abs().sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=gen))


def holdout_error(model, gen, batches=120):
    """Error on this port's held-out tows, bootstrap over resampled tows."""
    errors = []
    with torch.no_grad():
        for _ in range(batches):
            x, y = hauls(gen, 512)
            picks = torch.randint(0, 512, (200, 512), generator=gen)
            errors.append(((model.module(x) - y).abs().squeeze(1))[picks].mean(1).median())
    return torch.stack(errors).mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    logbook = Logbook(PORTS[rank])
    with tempfile.TemporaryDirectory(prefix="trawl-") as folder:
        archive = Archive(folder, rank)
        for step in range(1, 30 * BLOCK):
            x, y = hauls(gen, 4096)
            loss = nn.functional.smooth_l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            logbook.note(step, loss.item())
            if step % BLOCK == 0:
                archive.save(step // BLOCK, model.module, logbook)
                error = holdout_error(model, gen)
                dist.all_reduce(error)
                if rank == 0:
                    print(f"step {step} loss {loss.item():.3f} hold-out {error.item() / world:.3f}", flush=True)
        archive.pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
