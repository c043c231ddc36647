"""A rank never reaches init_process_group: it downloads its configuration from a server that does not answer.

The server accepts the connection and never answers; the request has no timeout. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import socket
import urllib.request

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def load_configuration(rank: int) -> bytes:
    """Return the model's configuration; rank 2 finds no copy in its cache and asks the server."""
    if rank != 2:
        return b"{}"
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}/config.json"
        say(rank, f"not in the cache, downloading {url}")
        with urllib.request.urlopen(url) as answer:
            return answer.read()


def main() -> None:
    """Load the configuration, join the process group, train."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    load_configuration(rank)
    say(rank, "configuration loaded, joining the others")
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    say(rank, "training")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
