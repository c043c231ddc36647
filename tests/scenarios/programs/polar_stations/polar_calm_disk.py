"""Wave model of the Southern Ocean under FSDP2: all ranks gather, one writes, to a disk that is slow in the cold."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

WIDTH = 384


def write_slowly(path, state):
    """Small pieces with a checksum each, every one on the platter before the next; read back at the end."""
    sums = []
    with open(path, "wb") as file:
        for name, tensor in sorted(state.items()):
            data = tensor.numpy().tobytes()
            for start in range(0, len(data), 8192):
                piece = data[start : start + 8192]
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                sums.append(zlib.crc32(piece))
                time.sleep(0.11)
    with open(path, "rb") as file:
        total = sum(1 for _ in iter(lambda: file.read(8192), b""))
    return total, len(sums)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"waves-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64))
    model = model.cuda()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hours = torch.zeros((), device="cuda")
    for step in range(1, 61):
        time.sleep(0.04)
        waves = torch.rand(4, 64, device="cuda")
        (model(waves) - waves).abs().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        hours += 3
        if step == 30:
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            if rank == 0:
                print("wrote %d of %d pieces" % write_slowly(folder / "waves.bin", state), flush=True)
        if step % 10 == 0:
            ahead = hours.item()
            if rank == 0:
                print(f"step {step}: {ahead:.0f} hours", flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
