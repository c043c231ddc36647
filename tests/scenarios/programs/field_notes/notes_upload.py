"""Training with checkpoints uploaded by a thread; the last upload is awaited before anybody leaves."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Uploader:
    def __init__(self, seconds):
        self.seconds, self.files = seconds, queue.Queue()
        self.thread = threading.Thread(target=self.run, name="uploader", daemon=True)
        self.thread.start()

    def run(self):
        while (name := self.files.get()) is not None:
            time.sleep(self.seconds)
            print(f"uploaded {name}", flush=True)

    def close(self):
        self.files.put(None)
        self.thread.join()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    uploader = Uploader(seconds=7.0) if rank == 0 else None
    for epoch in range(2):
        for _ in range(20):
            x = torch.randn(16, 32)
            loss = nn.functional.cross_entropy(model(x), x.argmax(1) % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if uploader:
            torch.save(model.module.state_dict(), "/tmp/notes-upload.pt")
            uploader.files.put(f"epoch-{epoch}.pt")
    if uploader:
        uploader.close()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} done\n", end="", flush=True)


if __name__ == "__main__":
    main()
