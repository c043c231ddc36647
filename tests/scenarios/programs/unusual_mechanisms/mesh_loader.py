"""Three replicas of two tensor-parallel ranks on a DeviceMesh; batches come from DataLoader workers with a read cache.

The cache's lock is no RLock, and evicting takes it once more. Run by ``torchrun --nproc-per-node 6``.
"""

import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, Dataset


class BlockCache:
    """Keeps the blocks of the data file that were used last."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self.blocks: OrderedDict[int, torch.Tensor] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, number: int, rows: int) -> torch.Tensor:
        """A block, read if it has to be."""
        with self.lock:
            if number not in self.blocks:
                self.blocks[number] = torch.full((rows, 8), float(number))
                self.size += rows
                if self.size > self.limit:
                    self.evict()
            return self.blocks[number]

    def evict(self) -> None:
        """Forget the oldest block."""
        with self.lock:
            _, block = self.blocks.popitem(last=False)
            self.size -= len(block)


class Blocks(Dataset[torch.Tensor]):
    """Rows in blocks of 32; the blocks of replica 2 are larger towards the end."""

    def __init__(self, replica: int) -> None:
        self.replica, self.cache = replica, BlockCache(limit=1024)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        rows = 512 if (self.replica, index) in {(2, 17), (2, 18)} else 4
        return self.cache.get(index, rows)[:4]


def main() -> None:
    """Feed-forward net, two ranks wide."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("replica", "tensor"))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    net = parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    blocks = Blocks(mesh["replica"].get_local_rank())
    # The second tensor rank of a replica reads what the first one reads, a little later, from files of its own.
    loader = DataLoader(blocks if rank != 5 else Blocks(0), batch_size=1, num_workers=1)
    for batch in loader:
        loss = net(batch[0]).square().mean()
        loss.backward()
        for parameter in net.parameters():
            gradient = parameter.grad.to_local()
            dist.all_reduce(gradient, group=mesh["replica"].get_group())
            parameter.grad = None
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
