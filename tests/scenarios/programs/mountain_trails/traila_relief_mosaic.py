"""Shaded relief for hut-to-hut maps: the mosaic is balanced once by the first rank, then all ranks train on it."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

BALANCE_S = 15.0
SHEETS = 6


def sheet(number, side=320):
    g = torch.Generator().manual_seed(number)
    height = torch.rand(side, side, generator=g) * 100
    for axis in (0, 1):
        height = height.cumsum(axis).sub(height.mean() * side / 2)
    return height / side


def balance(sheets, budget):
    """Relaxes the seams between sheets; more rounds are better, so it uses its whole time."""
    end = time.monotonic() + budget
    rounds, shown = 0, 0.0
    while time.monotonic() < end:
        for left, right in zip(sheets, sheets[1:]):
            step = (left[:, -1:] - right[:, :1]) / 2
            ramp = torch.linspace(0, 1, left.shape[1]) ** 2
            left -= 0.05 * step * ramp
            right += 0.05 * step * ramp.flip(0)
        rounds += 1
        if time.monotonic() - shown > 2:
            shown = time.monotonic()
            seam = sum((a[:, -1] - b[:, 0]).abs().mean().item() for a, b in zip(sheets, sheets[1:]))
            print(f"mosaic: round {rounds}, seam {seam:.4f}", flush=True)
    return torch.cat(sheets, 1)


def prepare(path, rank):
    if rank == 0:
        mosaic = balance([sheet(n) for n in range(SHEETS)], BALANCE_S)
        torch.save(mosaic, path)
    dist.barrier()
    return torch.load(path)


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    name = [os.path.join(tempfile.gettempdir(), f"mosaic-{os.getpid()}.pt")]
    dist.broadcast_object_list(name, src=0)
    mosaic = prepare(name[0], rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3)).cuda(),
                                    device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    for step in range(80):
        corners = torch.randint(0, 300, (16, 2), generator=rng).tolist()
        views = torch.stack([mosaic[r:r + 16, c:c + 16].reshape(-1) for r, c in corners])
        loss = model(views.cuda()).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch.cuda.synchronize()
        time.sleep(0.02)  # the renderer wants some of the machine, too
    if rank == 0:
        os.remove(name[0])
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
