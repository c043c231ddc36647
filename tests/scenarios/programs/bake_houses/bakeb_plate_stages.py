"""Plating check as a pipeline: photos go through in chunks, the last stage scores them."""
import torch
import torch.distributed as dist
from torch import nn

CHUNK = 8
WIDTH = 32


def photos_of(shift):
    """Plates photographed in a shift; the kitchen closes earlier on the 60th."""
    return 28 if shift == 60 else 32


class Stage:
    def __init__(self, rank, last):
        torch.manual_seed(50 + rank)
        self.rank, self.last = rank, last
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).eval()

    def receive(self):
        chunk = torch.empty(CHUNK, WIDTH)
        dist.recv(chunk, src=self.rank - 1)
        return chunk

    def forward(self, chunk):
        texture = torch.linalg.svdvals(torch.rand(70, 70))
        return self.block(chunk) + 1e-6 * texture[:WIDTH]


class Camera(Stage):
    def shift(self, number):
        plates = torch.rand(photos_of(number), WIDTH)
        for index in range(len(plates) // CHUNK):
            dist.send(self.forward(plates[index * CHUNK : (index + 1) * CHUNK]).contiguous(), dst=1)
        return torch.zeros(1)


class Middle(Stage):
    def shift(self, number):
        for _ in range(photos_of(number) // CHUNK):
            dist.send(self.forward(self.receive()), dst=self.rank + 1)
        return torch.zeros(1)


class Judge(Stage):
    def shift(self, number):
        wanted = torch.linspace(0, 1, photos_of(number))
        score = torch.zeros(1)
        for targets in wanted.split(CHUNK):
            looks = self.forward(self.receive()).mean(dim=1)
            score += (looks[: len(targets)] - targets).abs().sum()
        return score


def build(rank, world):
    if rank == 0:
        return Camera(rank, last=False)
    if rank == world - 1:
        return Judge(rank, last=True)
    return Middle(rank, last=False)


@torch.no_grad()
def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = build(rank, world)
    for number in range(200):
        score = stage.shift(number)
        dist.broadcast(score, src=world - 1)
        if rank == 0 and number % 20 == 0:
            print(f"shift {number}: {score.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
