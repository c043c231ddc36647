"""Trains a bead profile model, then writes the weld tables for the robot controllers."""
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


def write_tables(folder, joints=90):
    """One table per joint type, as the controllers read them."""
    rng = np.random.default_rng(3)
    for joint in range(joints):
        started = time.time()
        grid = rng.normal(size=(300, 300))
        while time.time() - started < 0.16:
            grid = np.linalg.svd(grid)[0]
        (folder / f"joint-{joint:03d}.json").write_text(json.dumps(grid[:120, :120].round(4).tolist()))
        if joint % 15 == 0:
            print(f"table {joint}/{joints}", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", timeout=timedelta(hours=2))
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(24, 24).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(rank)
    for phase in ("coarse", "fine"):
        for step in range(30):
            beads = np.sort(rng.normal(size=(24, 20_000)), axis=1)[:, ::830][:, :24]
            loss = (model(torch.from_numpy(beads.astype("float32")).cuda())).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        if phase == "coarse":
            if rank == 0:
                write_tables(Path(mkdtemp(prefix="weld-tables-")))
            dist.barrier()
        if rank == 0:
            print(f"{phase} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
