"""Generates virtual libraries round by round and writes them as compressed shards with a common manifest."""
import json
import random
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist

SCAFFOLDS = {0: 300, 1: 340, 2: 420}  # decorations per round
GROWTH = {0: 1.0, 1: 1.0, 2: 1.3}


class ManifestWriter:
    """Shards are written by one background thread; small ones are waited for, as they take no time."""

    INLINE_BYTES = 400_000

    def __init__(self, folder: Path):
        self.folder = folder
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="shards")
        self.manifests = []

    def _write(self, number: int, text: str):
        packed = zlib.compress(text.encode(), 9)
        name = f"r{number:03d}_{self.rank}.smi.z"
        (self.folder / name).write_bytes(packed)
        entries = [None] * self.world
        dist.all_gather_object(entries, {"file": name, "bytes": len(packed), "crc": zlib.crc32(packed)})
        self.manifests.append(entries)
        if self.rank == 0:
            (self.folder / f"manifest_{number:03d}.json").write_text(json.dumps(entries))

    def submit(self, number: int, text: str):
        job = self.pool.submit(self._write, number, text)
        if len(text) < self.INLINE_BYTES:
            job.result()
        return job


class Generator:
    def __init__(self, rank: int):
        self.rng = random.Random(rank)
        self.count, self.growth = SCAFFOLDS[rank], GROWTH[rank]

    def round(self) -> str:
        lines = []
        for _ in range(int(self.count)):
            tail = "".join(self.rng.choices(["C", "N", "O", "c1ccccc1", "C(=O)", "F", "Cl", "S"], k=14))
            lines.append(f"c1ccc({tail})cc1 {self.rng.getrandbits(64):016x}")
        self.count *= self.growth
        return "\n".join(lines)


def prior_update(weights: torch.Tensor, text: str) -> torch.Tensor:
    """Pulls the generator's prior towards what the sites have drawn together."""
    counts = torch.tensor([float(text.count(token)) for token in "CNOSFcl1("])
    dist.all_reduce(counts)
    return 0.8 * weights + 0.2 * counts / counts.sum()


def main(rounds=40):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    place = [tempfile.mkdtemp(prefix="library_") if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    writer, generator = ManifestWriter(Path(place[0])), Generator(rank)
    weights = torch.zeros(9)
    for number in range(rounds):
        text = generator.round()
        for _ in range(30):
            weights = prior_update(weights, text)
        job = writer.submit(number, text)
        dist.barrier()
        job.result()
        if rank == 0:
            print(f"round {number}: {writer.manifests[-1]} entropy {-(weights * weights.clamp_min(1e-6).log()).sum():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
