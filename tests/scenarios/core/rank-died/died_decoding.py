"""A native image decoder crashes on one rank's file, and no launcher tells the others.

The crash is a real SIGSEGV (a C function is handed a null pointer). The other ranks go on to create the evaluation
group and wait there for a process that is no more. Started by a launcher that does not supervise.
"""

import ctypes
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pretrain")


class Decoder:
    """A thin binding, as people write them: what C returns is dereferenced without a look."""

    def __init__(self) -> None:
        self.getenv = ctypes.CDLL(None).getenv
        self.getenv.restype = ctypes.c_void_p

    def header(self, name: str) -> bytes:
        """The first bytes of a decoded image, after the magic number."""
        address = self.getenv(name.encode())
        return ctypes.string_at((address or 0) + 8, 4)


def load_validation(rank: int) -> torch.Tensor:
    """This rank's validation images; those of rank 2 are damaged."""
    decoder = Decoder()
    name = "IMAGE_THAT_IS_DAMAGED" if rank == 2 else "PATH"
    return torch.tensor(list(decoder.header(name)), dtype=torch.float32)


def main() -> None:
    """Some steps, then a validation in a group of its own."""
    logging.basicConfig(level=logging.INFO, format=f"[rank {os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    for epoch in range(3):
        loss = net(torch.randn(16, 4)).square().mean()
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        log.info("epoch %d loss %.3f", epoch, loss.item())
    images = load_validation(rank)
    validation = dist.new_group(ranks=list(range(dist.get_world_size())))
    score = net(images).mean().detach()
    dist.all_reduce(score, group=validation)
    log.info("score %.3f", score.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
