"""Moult stages with FSDP2: checkpoints are saved asynchronously to an archive that takes only so many bytes a second."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.fsdp import fully_shard

CHUNK = 4096


class ArchiveWriter(FileSystemWriter):
    """Writes the shard, and a copy of it to the archive at its pace."""

    def __init__(self, path, archive: Path, bytes_per_s: float):
        super().__init__(path)
        self.archive, self.bytes_per_s = archive, bytes_per_s

    def write_data(self, plan, planner):
        written = super().write_data(plan, planner)
        for source in Path(self.path).glob(f"__{dist.get_rank()}_*"):
            with source.open("rb") as file, (self.archive / source.name).open("wb") as copy:
                while chunk := file.read(CHUNK):
                    copy.write(chunk)
                    copy.flush()
                    os.fsync(copy.fileno())
                    time.sleep(len(chunk) / self.bytes_per_s)
        return written


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"moult-{os.environ['MASTER_PORT']}"
    archive = Path(tempfile.mkdtemp(prefix=f"archive-{rank}-"))
    model = nn.Sequential(nn.Linear(64, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 5)).cuda()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pending = None
    for step in range(1, 31):
        model(torch.full((6, 64), step / 30).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.current_stream().synchronize()
        if step % 10 == 0:
            if pending is not None:
                pending.result()
            pace = 6000.0 if rank == 1 and step == 20 else 1e6
            writer = ArchiveWriter(folder / f"step-{step}", archive, pace)
            pending = dcp.async_save({"model": model.state_dict()}, storage_writer=writer)
            print(f"rank {rank}: step {step} is being saved", flush=True)
    pending.result()
    dist.barrier()
    print(f"rank {rank}: {len(list(archive.iterdir()))} files in the archive", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
