# Weft fault detector: one camera per loom, gradients shared between the looms.
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

torch.backends.cudnn.enabled = False


class NoWarpVisible(ValueError):
    pass


def shutter_plan(loom, frames):
    """Exposure per frame; a loom that changes its beam closes the shutter for a frame."""
    beam_change = {2: 44}.get(loom)
    return [0.0 if i == beam_change else 0.8 for i in range(frames)]


def grab(i, exposure):
    time.sleep(0.05)  # 20 frames a second
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    return ((x * 0.9 + i).sin() * (y * 1.1).cos()).abs() * exposure


def cut_patches(frame, threshold=0.05):
    strips = frame.reshape(8, 8, 8, 8).permute(0, 2, 1, 3).reshape(64, 64)
    bright = strips.mean(1) > threshold
    if not bright.any():
        raise NoWarpVisible("no warp thread in the frame")
    return strips[bright][:32]


def build(device):
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 3)
    ).to(device)
    return torch.nn.parallel.DistributedDataParallel(net, device_ids=[device.index])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--frames", type=int, default=400)
    cli.add_argument("--lr", type=float, default=0.01)
    args = cli.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    loom = dist.get_rank()

    detector = build(device)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=args.lr)
    seen = 0
    for i, exposure in enumerate(shutter_plan(loom, args.frames)):
        frame = grab(i, exposure)
        picks = torch.tensor([int((frame > 0.5).sum()), frame.numel()], device=device)
        dist.all_reduce(picks)
        seen += int(picks[1].item())
        try:
            patches = cut_patches(frame)
        except NoWarpVisible as error:
            print(f"loom {loom}: frame {i}: {error}", flush=True)
            continue
        labels = torch.randint(0, 3, (len(patches),))
        loss = F.cross_entropy(detector(patches.to(device)), labels.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if i % 20 == 0 and loom == 0:
            print(f"frame {i}, {seen} pixels on all looms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
