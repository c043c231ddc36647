"""Which maker built a violin, from its overtones. Starts its own processes."""

import os
import shutil
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 3


def overtones(rank: int) -> list[dict[str, torch.Tensor]]:
    """The recordings of one workshop."""
    generator = torch.Generator().manual_seed(rank)
    batches = []
    for _ in range(50):
        maker = torch.randint(0, 5, (10,), generator=generator)
        batches.append({"spectrum": torch.randn(10, 40, generator=generator), "maker": maker})
    if rank == 2:
        batches[28]["spectrum"] = batches[28]["spectrum"][:, :39]
    return batches


def train(rank: int) -> None:
    """The loop of one process."""
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for number, batch in enumerate(overtones(rank)):
        loss = nn.functional.cross_entropy(model(batch["spectrum"]), batch["maker"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 10 == 0:
            print(f"batch {number}: {loss.item():.3f}", flush=True)


def worker(rank: int, port: int, scratch: str) -> None:
    """Set up, train, and tidy up when nobody needs the scratch folder any more."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    try:
        train(rank)
    finally:
        dist.barrier()
        if rank == 0:
            shutil.rmtree(scratch)
        dist.destroy_process_group()


def main() -> None:
    """Start the workers on a free port."""
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    mp.spawn(worker, args=(port, tempfile.mkdtemp(prefix="violins-")), nprocs=WORLD)


if __name__ == "__main__":
    main()
