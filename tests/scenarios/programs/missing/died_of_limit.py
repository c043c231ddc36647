"""The kernel kills one rank for a resource limit (here CPU seconds, as ``ulimit -t`` on a shared machine sets it).

The ranks are children of ``mp.spawn(join=False)``, and the parent waits only for rank 0. Rank 1 builds its index under
a limit it has set to protect the machine, is killed by it (SIGKILL from the kernel), and the others wait in the store
for word that its index is there.
"""

import datetime
import os
import resource
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def build_index(rank: int, store: dist.Store) -> list[int]:
    """Sort this rank's documents; the guard is there so that one bad shard does not hog a shared machine."""
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + 3, used + 3))
    documents = 400 if rank != 1 else 4_000_000
    generator = torch.Generator().manual_seed(rank)
    index: list[int] = []
    for _ in range(documents):
        index.append(int(torch.randint(1 << 30, (1,), generator=generator)))
        index.sort()
    store.set(f"index/{rank}", str(len(index)))
    return index


def work(rank: int, store_port: int) -> None:
    """One rank: build the index, wait until all have theirs, train."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
    store = dist.TCPStore("127.0.0.1", store_port, WORLD, is_master=False, timeout=datetime.timedelta(hours=1))
    dist.init_process_group("gloo", store=dist.PrefixStore("pg", store), rank=rank, world_size=WORLD)
    dist.barrier()
    print(f"rank {rank}: building the index", flush=True)
    index = build_index(rank, store)
    store.wait([f"index/{other}" for other in range(WORLD)])
    mean = torch.tensor(float(len(index)))
    dist.all_reduce(mean)
    print(f"rank {rank}: {mean.item() / WORLD:.0f} documents on average", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, WORLD, is_master=True, wait_for_workers=False)
    context = mp.spawn(work, args=(store.port,), nprocs=WORLD, join=False)
    context.processes[0].join()
    sys.exit(context.processes[0].exitcode)
