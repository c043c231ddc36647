"""Resistivity inversion: every process hands its cubes to a background uploader; queues are drained before the survey is closed."""
import os
import queue
import random
import shutil
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class Uploader:
    """One connection to the archive; the archive takes about `rate` bytes a second from us."""

    def __init__(self, target, rate):
        self.target, self.rate = target, rate
        self.backlog = queue.Queue()
        self.thread = threading.Thread(target=self._work, name="uploader", daemon=True)
        self.thread.start()

    def submit(self, name, payload):
        self.backlog.put((name, payload))

    def _work(self):
        while True:
            name, payload = self.backlog.get()
            with open(os.path.join(self.target, name), "wb") as f:
                for start in range(0, len(payload), 8192):
                    part = payload[start:start + 8192]
                    f.write(part)
                    f.flush()
                    time.sleep(len(part) / self.rate)
            self.backlog.task_done()

    def drain(self):
        self.backlog.join()


def cube(seed, side):
    return random.Random(seed).randbytes(side ** 3)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    target = tempfile.mkdtemp(prefix=f"cubes_{rank}_")
    # the deep electrodes give larger cubes
    side = (24, 64, 24)[rank]
    uploader = Uploader(target, rate=300_000)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 20)).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)

    def sweep(first, count, every):
        for step in range(first, first + count):
            time.sleep(0.05)
            x = torch.randn(10, 20).cuda()
            loss = (net(x) - x).square().mean()
            opt.zero_grad()
            loss.backward()
            work = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
            for w in work:
                w.wait()
            opt.step()
            loss.item()
            if step % every == 0:
                uploader.submit(f"cube_{step:03d}.bin", cube(step, side))

    sweep(0, 60, every=3)
    uploader.drain()
    sent = torch.tensor(len(os.listdir(target)), device="cuda")
    dist.all_reduce(sent)
    if rank == 0:
        print(f"{sent.item()} cubes in the archive", flush=True)
    else:
        sent.item()
    sweep(61, 50, every=12)
    uploader.drain()
    dist.barrier(device_ids=[local_rank])
    shutil.rmtree(target)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
