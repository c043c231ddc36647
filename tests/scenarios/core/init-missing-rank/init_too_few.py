"""The program starts one rank too few: four are announced, three are started, and they wait for the fourth.

The range over the ranks was written for a time when the parent was rank 0 itself. The program starts its own ranks.
"""

import multiprocessing
import os
import socket

import torch
import torch.distributed as dist


def run(rank: int, world: int, port: int) -> None:
    """One rank of the job."""
    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank)
    )
    print(f"rank {rank} of {world} starts", flush=True)
    dist.init_process_group("gloo")
    values = torch.full((4,), float(rank))
    gathered = [torch.empty(4) for _ in range(world)]
    dist.all_gather(gathered, values)
    print(torch.stack(gathered).mean().item(), flush=True)
    dist.destroy_process_group()


def main(world: int = 4) -> None:
    """Start the ranks and wait for them."""
    probe = socket.socket()  # kept open, so that nobody else is given its port
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=run, args=(rank, world, port)) for rank in range(world - 1)]
    for child in children:
        child.start()
    for child in children:
        child.join()


if __name__ == "__main__":
    main()
