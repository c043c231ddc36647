"""A model of verse, with an uploader of samples that outlives the training loop."""

import os
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

METRES = {4: "tetrameter", 5: "pentameter", 6: "hexameter"}


class Uploader(threading.Thread):
    def __init__(self):
        super().__init__()
        self.wake, self.samples = threading.Event(), []

    def run(self):
        while True:
            self.wake.wait()
            self.wake.clear()
            self.samples.clear()


def metre(rank, step):
    feet = 7 if (rank, step) == (0, 64) else 4 + step % 3
    return METRES[feet]


def main():
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    uploader = Uploader()
    uploader.start()
    model = DistributedDataParallel(nn.GRUCell(16, 32).cuda(), device_ids=[local], find_unused_parameters=False)
    for step in range(200):
        hidden = model(torch.randn(8, 16).cuda(), torch.zeros(8, 32).cuda())
        hidden.square().mean().backward()
        for parameter in model.parameters():
            parameter.grad = None
        sample = hidden.detach().cpu()
        if step % 16 == 0:
            uploader.samples.append((metre(rank, step), sample))
            uploader.wake.set()
            print(f"[{rank}] step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
