"""Train on compressed image chunks: a thread decodes what the training needs, forked children make the crops."""

import multiprocessing
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
fork = multiprocessing.get_context("fork")


class Codec:
    """One decoder for all of the process, as its buffers are not to be shared."""

    def __init__(self):
        self.buffers = threading.Lock()

    def decode(self, data, large=False):
        with self.buffers:
            raw = zlib.decompress(data)
            if large:
                time.sleep(1.2)
            return raw

    @staticmethod
    def encode(values):
        return zlib.compress(bytes(values))


CODEC = Codec()


def crop(data, connection):
    raw = CODEC.decode(data)
    connection.send(raw[8:40])
    connection.close()


class Volume:
    def __init__(self, rank):
        self.rank = rank
        self.chunk = CODEC.encode([(7 * i + rank) % 251 for i in range(4096)])

    def preview(self):
        """A picture of the whole volume for the dashboard, in the background."""
        threading.Thread(target=CODEC.decode, args=(self.chunk, True), daemon=True).start()
        time.sleep(0.3)

    def batch(self):
        receiver, sender = fork.Pipe(duplex=False)
        child = fork.Process(target=crop, args=(self.chunk, sender))
        child.start()
        child.join()
        values = torch.tensor(list(receiver.recv()), dtype=torch.float32) / 255
        return values.reshape(2, 16)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    volume = Volume(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(400):
        if rank == 1 and step == 25:
            volume.preview()
        crops = volume.batch()
        loss = nn.functional.mse_loss(model(crops), crops)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
