"""A barrier of the user's own on the store: every rank leaves its word and waits for those of the others.

Rank 3 opens a named pipe for its labels, which waits for a writer, and never comes. Nothing of the wait is a
collective. Run by ``torchrun --nproc-per-node 4``.
"""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist


class Rendezvous:
    """Meets all ranks without a collective, so that no device is touched."""

    def __init__(self, store: dist.Store, rank: int, world: int) -> None:
        self.store, self.rank, self.world = store, rank, world

    def meet(self, place: str) -> None:
        """Return when every rank has come."""
        self.store.set(f"{place}/{self.rank}", "here")
        self.store.wait([f"{place}/{rank}" for rank in range(self.world)], datetime.timedelta(hours=1))


def read_labels(rank: int) -> bytes:
    """The labels of this rank, out of the annotation tool's pipe on the last one."""
    path = os.path.join(tempfile.mkdtemp(), "labels")
    if rank == 3:
        os.mkfifo(path)
    else:
        with open(path, "wb") as file:
            file.write(bytes(range(10)))
    with open(path, "rb") as file:
        return file.read()


def main() -> None:
    """Read, meet, count."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rendezvous = Rendezvous(dist.PrefixStore("meet", dist.distributed_c10d._get_default_store()), rank, world)
    rendezvous.meet("started")
    labels = read_labels(rank)
    rendezvous.meet("labelled")
    count = torch.tensor(len(labels))
    dist.all_reduce(count)
    print(count.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
