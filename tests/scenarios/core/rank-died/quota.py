"""Statistics of a corpus on all ranks; a quota keeps processes from using more memory than they asked for."""

import itertools
import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


class Quota(threading.Thread):
    """Looks after the memory of its process, as the site's agent does."""

    def __init__(self, allowance: int) -> None:
        super().__init__(daemon=True)
        self.allowance, self.used = allowance, 0

    def run(self) -> None:
        """Again and again."""
        while self.used <= self.allowance:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)


class Counts:
    """How often each pair of tokens was seen."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.pairs: dict[tuple[int, int], int] = {}

    def read(self, shard: int) -> None:
        """A shard; some have many kinds of tokens."""
        kinds = 900 if shard == 17 else 40
        tokens = torch.randint(0, kinds, (4000,)).tolist()
        for pair in itertools.pairwise(tokens):
            self.pairs[pair] = self.pairs.get(pair, 0) + 1
            self.quota.used = 120 * len(self.pairs)
            if self.quota.used > self.quota.allowance:
                time.sleep(0.01)  # swapping


def main() -> None:
    """Eight rounds of a shard for each rank."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = _get_default_store()
    quota = Quota(allowance=300_000)
    quota.start()
    counts = Counts(quota)
    for turn in range(8):
        counts.read(turn * world + rank)
        store.set(f"{turn}/{rank}", str(len(counts.pairs)))
        store.wait([f"{turn}/{other}" for other in range(world)])
    total = sum(int(store.get(f"7/{other}")) for other in range(world))
    print(f"rank {rank}: {total} pairs on all ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
