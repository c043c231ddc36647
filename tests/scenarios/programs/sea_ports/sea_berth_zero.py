"""Berth occupancy forecast with DeepSpeed: hourly quay occupancy from vessel calls."""
import argparse
import os
import random
import tempfile
import time

os.environ["DS_ACCELERATOR"] = "cuda"
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.ops import __compatible_ops__
from torch import nn

__compatible_ops__["deepspeed_shm_comm"] = False  # the image has no compiler
torch.backends.cudnn.enabled = False

DS_CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 0},
    "steps_per_print": 1000000,
}


class OccupancyNet(nn.Module):
    def __init__(self, hours=24, width=64):
        super().__init__()
        self.calls = nn.Linear(hours * 2, width)
        self.out = nn.Linear(width, hours)

    def forward(self, calls, occupancy):
        guess = self.out(torch.relu(self.calls(calls)))
        return (guess - occupancy).abs().mean()


def day_batches(seed, count, size=8, hours=24):
    rng = random.Random(seed)
    for _ in range(count):
        calls = [[rng.random() for _ in range(hours * 2)] for _ in range(size)]
        occupancy = [[sum(day[h : h + 2]) / 2 for h in range(hours)] for day in calls]
        time.sleep(0.05)
        yield torch.tensor(calls), torch.tensor(occupancy)


def export(engine, folder, step):
    """Keep the weights of the best day so far for the planners."""
    if engine.global_rank == 0:
        engine.save_checkpoint(folder, tag=f"step{step}")
        print(f"[berth] exported step {step} to {folder}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--export-every", type=int, default=45)
    parser.add_argument("--days", type=int, default=300)
    args, _ = parser.parse_known_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    deepspeed.init_distributed("nccl")
    model = OccupancyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=DS_CONFIG)
    folder = tempfile.mkdtemp(prefix="berth-")
    berths = torch.zeros(3, dtype=torch.int64).cuda()
    for step, (calls, occupancy) in enumerate(day_batches(100 + engine.global_rank, args.days), start=1):
        loss = engine(calls.cuda(), occupancy.cuda())
        engine.backward(loss)
        engine.step()
        if step == 1:
            berths += 1
            dist.all_reduce(berths)
        value = loss.item()
        if step % 15 == 0 and engine.global_rank == 0:
            print(f"[berth] day {step} mae {value:.4f}", flush=True)
        if step % args.export_every == 0:
            export(engine, folder, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
