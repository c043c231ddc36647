"""Predicts lamp and lens fouling of unmanned lights from current and voltage traces."""
import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--save-every", type=int, default=75)
    parser.add_argument("--trace", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "lenskeeper")
    return parser.parse_args()


def traces(length, rank):
    """One night of a light after another: (trace, fouling) batches."""
    generator = torch.Generator().manual_seed(rank)
    t = torch.linspace(0, 6.28, length)
    while True:
        fouling = torch.rand(48, generator=generator)
        noise = torch.randn(48, length, generator=generator)
        trace = torch.sin(t * 8) * (1 - fouling[:, None]) + 0.1 * noise
        spectrum = torch.fft.rfft(trace).abs()[:, : length // 2]
        yield torch.cat([trace[:, : length // 2], spectrum], dim=1), fouling


class Checkpoints:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def due(self, step):
        return step > 0 and step % self.every == 0

    def write(self, step, model, optimizer):
        optimizer.consolidate_state_dict(to=0)
        state = {
            "step": step,
            "model": {k: v.cpu() for k, v in model.module.state_dict().items()},
            "optimizer": optimizer.state_dict(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.folder / f"step{step:05d}.pt")


def main():
    args = parse()
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    net = nn.Sequential(
        nn.Linear(args.trace, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 1)
    ).cuda()
    model = DistributedDataParallel(net, device_ids=[device])
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.SGD, lr=0.02, momentum=0.9
    )
    checkpoints = Checkpoints(args.out, args.save_every)
    batches = traces(args.trace, rank)
    for step in range(args.steps):
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x.cuda()).squeeze(1), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0:
            if step % 15 == 0:
                print(f"{step:5d} {value:.5f}", flush=True)
            if checkpoints.due(step):
                checkpoints.write(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
