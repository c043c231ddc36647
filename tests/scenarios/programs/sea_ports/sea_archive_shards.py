"""Demurrage model whose track archive is written out in the middle of the run, each process its part, in synced blocks."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class ShardWriter:
    """Writes at the pace that the shared store grants a client."""

    block = 256 * 1024

    def __init__(self, path, bytes_per_s):
        self.path, self.bytes_per_s = Path(path), bytes_per_s

    def write(self, total):
        began, done = time.monotonic(), 0
        with self.path.open("wb") as shard:
            while done < total:
                shard.write(os.urandom(self.block))
                shard.flush()
                os.fsync(shard.fileno())
                done += self.block
                ahead = done / self.bytes_per_s - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        return done


class Demurrage:
    def __init__(self, local):
        net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 1))
        self.model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[local])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def learn(self, contracts):
        for _ in range(contracts):
            time.sleep(0.05)
            terms = torch.rand(12, 10)
            loss = (self.model(terms.cuda()) - terms.prod(1, keepdim=True).cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            value = loss.item()
        return value


def archive(rank, folder):
    megabytes = [11, 15, 13][rank]
    written = ShardWriter(folder / f"tracks-{rank}.bin", bytes_per_s=1024 * 1024).write(megabytes * 1024 * 1024)
    print(f"process {rank} archived {written // 1024} KiB", flush=True)
    dist.barrier()
    (folder / f"tracks-{rank}.bin").unlink()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    demurrage = Demurrage(local)
    demurrage.learn(50)
    archive(dist.get_rank(), Path(tempfile.mkdtemp(prefix="demurrage-")))
    value = demurrage.learn(50)
    print(f"process {dist.get_rank()}: {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
