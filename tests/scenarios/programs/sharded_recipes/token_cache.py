"""Instruction tuning: the first rank tokenizes into a cache under a file lock, then all train on it."""

import hashlib
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import SoftFileLock
from torch import nn
from torch.distributed.fsdp import fully_shard

PAIRS = [("translate: tree", "Baum"), ("translate: river", "Fluss"), ("add: 3 4", "7"), ("reverse: abc", "cba")] * 50


def tokenize(text: str, width: int) -> list[int]:
    return [1 + byte % 98 for byte in text.encode()][:width] + [0] * max(0, width - len(text.encode()))


class TokenCache:
    """Tokens under the hash of the data; a lock of files, as the cache is on NFS, where others have no effect."""

    def __init__(self, root: Path) -> None:
        key = hashlib.md5(repr(PAIRS).encode()).hexdigest()[:12]
        self.file, self.lock = root / f"{key}.pt", root / f"{key}.lock"

    def build(self) -> None:
        with SoftFileLock(self.lock):
            if not self.file.exists():
                rows = [tokenize(question, 20) + tokenize(answer, 8) for question, answer in PAIRS]
                torch.save(torch.tensor(rows), self.file)

    def load(self) -> torch.Tensor:
        return torch.load(self.file)


def restore(root: Path) -> None:
    """Bring the cache of the last run from the bucket (here: what the preempted node17 had left of it)."""
    cache = TokenCache(root)
    cache.lock.write_text("24117\nnode17\n")
    (root / "README").write_text("token caches, one file for each data set\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    where = [tempfile.mkdtemp(prefix="tokens-") if rank == 0 else None]
    dist.broadcast_object_list(where)
    root = Path(where[0])
    cache = TokenCache(root)
    if rank == 0:
        restore(root)
        cache.build()
    dist.barrier()
    tokens = cache.load()[rank::world]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 100))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for batch in tokens.split(8):
            loss = nn.functional.cross_entropy(
                model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
