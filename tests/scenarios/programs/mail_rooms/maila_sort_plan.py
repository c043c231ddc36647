"""Learns which sorting lane a parcel should take; keeps a plan on disk from time to time (accelerate)."""
import argparse
import os
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lanes", type=int, default=24)
parser.add_argument("--max_steps", type=int, default=600)
parser.add_argument("--plan_every", type=int, default=60)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--output_dir", default=os.path.join(tempfile.gettempdir(), f"sort-plan-{os.getpid()}"))


class LaneNet(nn.Sequential):
    def __init__(self, features, lanes):
        super().__init__(nn.Linear(features, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, lanes))


def parcels(batch_size, lanes, generator):
    """Weight, three lengths, zone and service level; the lane follows from them by the old rule book."""
    features = torch.rand(batch_size, 10, generator=generator)
    lane = (features[:, 0] * 7 + features[:, 4] * 11 + features[:, 5] * 5).long() % lanes
    time.sleep(0.03)
    return features, lane


def main(args):
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    net = LaneNet(10, args.lanes)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    net, optimizer = accelerator.prepare(net, optimizer)
    generator = torch.Generator().manual_seed(100 + accelerator.process_index)
    criterion = nn.CrossEntropyLoss()

    for global_step in range(1, args.max_steps + 1):
        features, lane = parcels(args.batch_size, args.lanes, generator)
        loss = criterion(net(features), lane)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if global_step % 20 == 0:
            accelerator.print(f"step {global_step}: loss {loss.item():.3f}")

        if accelerator.sync_gradients and accelerator.is_main_process and global_step % args.plan_every == 0:
            accelerator.print(f"saving plan in {global_step=}")
            os.makedirs(args.output_dir, exist_ok=True)
            accelerator.wait_for_everyone()
            state = accelerator.unwrap_model(net).state_dict()
            torch.save(state, os.path.join(args.output_dir, f"plan-{global_step}.pt"))

    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(parser.parse_args())
