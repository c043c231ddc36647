"""Ocean heat content: the state goes into one history file, written gently, as the file system is shared."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


class HistoryFile:
    PIECE = 1 << 18

    def __init__(self, path, rate=2.5e6):
        self.path, self.rate = path, rate

    def append(self, data):
        begun = time.monotonic()
        with self.path.open("ab") as file:
            for start in range(0, len(data), self.PIECE):
                file.write(data[start : start + self.PIECE])
                file.flush()
                os.fsync(file.fileno())
                ahead = (start + self.PIECE) / self.rate - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    history = HistoryFile(Path(tempfile.gettempdir()) / f"ohc-{os.environ['MASTER_PORT']}.bin")
    heat = torch.rand(1 << 20, generator=torch.Generator().manual_seed(rank))
    for month in range(36):
        flux = (heat.mean() - 0.4).reshape(1)
        dist.all_reduce(flux)
        heat -= 0.02 * flux / world
        time.sleep(0.08)
        if month % 24 == 20:
            total = heat.clone()
            dist.reduce(total, dst=0)
            if rank == 0:
                record = (total / world).repeat(6 if month else 1).numpy().tobytes()
                history.append(record)
                print(f"month {month}: {len(record) >> 20} MiB", flush=True)
    dist.barrier()
    if rank == 0:
        history.path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
