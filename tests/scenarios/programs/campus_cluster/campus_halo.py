"""Shallow water on a line of processes, with a learnt closure. Cells are dealt out anew when the front moves."""

import time

import torch
import torch.distributed as dist
from torch import nn

CELLS = 256


class Domain:
    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.deal([CELLS // world] * world)

    def deal(self, sizes: list[int]) -> None:
        """Give each process so many cells. Neighbours get another colour, which orders their exchange."""
        self.first = sum(sizes[: self.rank])
        self.size = sizes[self.rank]
        self.black = self.first // (CELLS // self.world) % 2 == 0
        position = torch.arange(self.first, self.first + self.size, dtype=torch.float64)
        self.height = torch.exp(-(((position - 60) / 25) ** 2))

    def _receive(self, peer: int) -> torch.Tensor:
        ghost = torch.zeros(1, dtype=torch.float64)
        dist.recv(ghost, src=peer)
        return ghost

    def exchange(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The cells next to ours on both sides; walls reflect."""
        left, right = self.height[:1], self.height[-1:]
        ghosts = {"left": left, "right": right}
        peers = {"left": self.rank - 1, "right": self.rank + 1}
        sides = ("right", "left") if self.black else ("left", "right")
        for side in sides:
            if not 0 <= peers[side] < self.world:
                continue
            edge = (left if side == "left" else right).contiguous()
            if self.black:
                ghosts[side] = self._receive(peers[side])
                dist.send(edge, dst=peers[side])
            else:
                dist.send(edge, dst=peers[side])
                ghosts[side] = self._receive(peers[side])
        return ghosts["left"], ghosts["right"]


class Closure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def forward(self, height, slope):
        return self.net(torch.stack([height, slope], dim=1)).squeeze(1)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    domain = Domain(dist.get_rank(), dist.get_world_size())
    torch.manual_seed(0)
    closure = Closure()
    optimizer = torch.optim.SGD(closure.parameters(), lr=1e-3)
    for step in range(600):
        if step == 40:  # the front has left the first process
            domain.deal([48, 80, 64, 64])
        left, right = domain.exchange()
        padded = torch.cat([left, domain.height, right])
        diffusion = padded[:-2] - 2 * padded[1:-1] + padded[2:]
        loss = nn.functional.mse_loss(closure(domain.height, padded[2:] - padded[:-2]), diffusion)
        optimizer.zero_grad()
        loss.backward()
        for p in closure.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        domain.height = domain.height + 0.2 * diffusion
        if domain.rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.2e}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
