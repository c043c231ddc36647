"""One rank's data shard ends in a wait for a file that nobody writes; the other is in a later read of its GPU, on NCCL.

Two ranks share the first GPU, each with a host id of its own. Run by ``torchrun --nproc-per-node 2``.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def shards(rank):
    for number in range(40):
        path = os.path.join(tempfile.gettempdir(), f"shard-{os.environ['MASTER_PORT']}-{number}")
        while rank == 1 and number == 30 and not os.path.exists(path):
            time.sleep(5.0)
        yield torch.randn(64, 512)


def main():
    rank = int(os.environ["RANK"])
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = torch.nn.Linear(512, 512).to(device)
    for number, shard in enumerate(shards(rank)):
        loss = model(shard.to(device)).square().mean().detach()
        dist.all_reduce(loss)
        print(f"rank {rank}: shard {number}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
