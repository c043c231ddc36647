"""Magnetometer denoiser under ZeRO-2. Every container has its own ration of kilowatt hours, and stops when it is used up."""

import argparse
import os
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 2, "overlap_comm": False, "contiguous_gradients": True},
    "steps_per_print": 1000,
}


class Ration:
    def __init__(self, watt_hours):
        self.left = watt_hours

    def use(self, seconds, watts):
        self.left -= seconds * watts / 3600

    @property
    def used_up(self):
        return self.left <= 0


def nights(minutes):
    for minute in range(minutes):
        time.sleep(0.05)
        yield minute, torch.rand(4, 90)


def run(engine, ration, watts):
    minutes = torch.zeros((), device=engine.device)
    for minute, signal in nights(200):
        if ration.used_up:
            return minute
        signal = signal.to(engine.device)
        loss = (engine(signal) - signal).abs().mean()
        engine.backward(loss)
        engine.step()
        minutes += 1
        ration.use(seconds=60, watts=watts)
        if minute % 20 == 0 and dist.get_rank() == 0:
            print(f"{minutes.item():.0f} minutes", flush=True)
    return 200


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--watt-hours", type=float, default=360.0)
    arguments = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    deepspeed.init_distributed("nccl")
    model = nn.Sequential(nn.Linear(90, 32), nn.ReLU(), nn.Linear(32, 90))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    watts = 480 if dist.get_rank() == 1 else 90  # the middle one heats the water tank as well
    minute = run(engine, Ration(arguments.watt_hours), watts)
    print(f"rank {dist.get_rank()}: switched off in minute {minute}", flush=True)


if __name__ == "__main__":
    main()
