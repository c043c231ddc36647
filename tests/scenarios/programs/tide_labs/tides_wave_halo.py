"""Shallow water on a periodic channel, cut into strips; a learned friction; halos between the strips."""
import time

import torch
import torch.distributed as dist


class Strip:
    """A piece of the channel. The outermost column of either side belongs to the neighbour."""

    def __init__(self, rank, world, width=24, height=10):
        self.left, self.right = (rank - 1) % world, (rank + 1) % world
        generator = torch.Generator().manual_seed(rank)
        self.eta = torch.rand(height, width + 2, generator=generator)

    def exchange(self):
        """One column each way, every step."""
        east, west = self.eta[:, -2].contiguous(), self.eta[:, 1].contiguous()
        from_west, from_east = torch.empty_like(east), torch.empty_like(west)
        work = [
            dist.isend(east, self.right, tag=1),
            dist.isend(west, self.left, tag=2),
            dist.irecv(from_west, self.left, tag=1),
            dist.irecv(from_east, self.right, tag=2),
        ]
        for item in work:
            item.wait()
        self.eta[:, 0], self.eta[:, -1] = from_west, from_east

    def smooth_seam(self, columns=4):
        """Now and then a wider overlap, to filter the noise at the seams."""
        theirs = torch.empty(self.eta.shape[0], columns)
        dist.recv(theirs, src=self.left, tag=3)
        dist.send(self.eta[:, -columns - 1 : -1].contiguous(), dst=self.right, tag=3)
        self.eta[:, 1 : columns + 1] = 0.5 * (self.eta[:, 1 : columns + 1] + theirs.flip(1))

    def advance(self, friction):
        eta = self.eta
        inner = eta[:, 1:-1]
        lap = eta[:, 2:] + eta[:, :-2] - 2 * inner
        self.eta[:, 1:-1] = inner + 0.2 * lap - friction * inner * 1e-3


def main(steps=2000, filter_every=40):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    strip = Strip(rank, world)
    friction = torch.tensor(1.0)
    for step in range(1, steps + 1):
        strip.exchange()
        strip.advance(friction)
        if step % filter_every == 0:
            strip.smooth_seam()
        if step % 20 == 0:
            energy = strip.eta.pow(2).sum()
            dist.all_reduce(energy)
            friction = energy / 1000
            if rank == 0:
                print(step, float(energy), flush=True)
        time.sleep(0.06)


if __name__ == "__main__":
    main()
