"""The world size comes from a configuration that was written for a bigger machine; the launcher starts fewer ranks.

Every rank that there is waits for one that there is not. Run by ``torchrun --nproc-per-node 3``.
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Cluster:
    """What the configuration says of the machines."""

    nodes: int = 1
    devices_per_node: int = 4

    @property
    def world_size(self) -> int:
        """How many ranks there are to be."""
        return self.nodes * self.devices_per_node


def connect(cluster: Cluster) -> None:
    """Join the process group the configuration describes."""
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    os.environ["WORLD_SIZE"] = str(cluster.world_size)
    rank = int(os.environ["RANK"])
    print(f"rank {rank} joins {cluster.world_size} ranks at {address}", flush=True)
    dist.init_process_group("gloo", init_method="env://", world_size=cluster.world_size, rank=rank)


def main() -> None:
    """Connect and agree on a seed."""
    torch.set_num_threads(1)
    connect(Cluster())
    seed = torch.randint(1 << 20, (1,))
    dist.broadcast(seed, src=0)
    torch.manual_seed(seed.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
