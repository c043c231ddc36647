"""DDP with checkpoints on a slow store: rank 0 writes in small pieces, the others go on to the next gradients."""
import io
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SlowStore:
    """Writes at a fixed rate, as a loaded network file system does."""

    def __init__(self, folder, rate=16_000):
        self.folder, self.rate = Path(folder), rate
        self.folder.mkdir(exist_ok=True)

    def put(self, name, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data = buffer.getvalue()
        with open(self.folder / name, "wb") as out:
            for start in range(0, len(data), 4096):
                piece = data[start : start + 4096]
                out.write(piece)
                out.flush()
                time.sleep(len(piece) / self.rate)
        return len(data)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    store = SlowStore("/tmp/night-slow-store")
    for step in range(1, 81):
        x = torch.randn(16, 64)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step % 40 == 0 and rank == 0:
            began = time.monotonic()
            size = store.put(f"{step}.pt", model.module.state_dict())
            print(f"step {step} loss {loss.item():.3f}: {size} bytes in {time.monotonic() - began:.1f} s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
