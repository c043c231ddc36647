"""Linear probes on frozen features of microscope images, one held-out plate for each rank, stopped when they converge."""

import argparse
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Heartbeat:
    """Tells the lab's dashboard that this process is alive."""

    def __init__(self, every=1.0):
        self.every, self.beats = every, 0
        self.stopped = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat").start()

    def _beat(self):
        while not self.stopped.wait(self.every):
            self.beats += 1


class Plate:
    """Frozen features and labels. Plates differ in how much noise their camera has."""

    def __init__(self, index, noise):
        generator = torch.Generator().manual_seed(index)
        direction = torch.linspace(-1, 1, 24)
        self.x = torch.randn(256, 24, generator=generator)
        self.y = ((self.x @ direction) + noise * torch.randn(256, generator=generator) > 0).float()
        self.held_x, self.held_y = self.x[192:], self.y[192:]

    def batches(self, size=32):
        for rows in torch.arange(192).split(size):
            time.sleep(0.04)
            yield self.x[rows], self.y[rows]


def held_out_accuracy(probe, plate):
    with torch.no_grad():
        return ((probe(plate.held_x)[:, 0] > 0).float() == plate.held_y).float().mean().item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--enough", type=float, default=0.8, help="accuracy at which a probe has converged")
    return parser.parse_args()


def main():
    options = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    Heartbeat()
    plate = Plate(rank, noise=0.0 if rank == 1 else 12.0)
    torch.manual_seed(0)
    probe = nn.Linear(24, 1)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    for epoch in range(options.epochs):
        for x, y in plate.batches():
            loss = nn.functional.binary_cross_entropy_with_logits(probe(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            for p in probe.parameters():
                dist.all_reduce(p.grad)
                p.grad.div_(world)
            optimizer.step()
        accuracy = held_out_accuracy(probe, plate)
        print(f"rank {rank}, epoch {epoch}: {accuracy:.3f}", flush=True)
        if epoch >= 5 and accuracy >= options.enough:
            print(f"rank {rank} has converged", flush=True)
            return


if __name__ == "__main__":
    main()
