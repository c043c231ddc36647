"""Shallow-water emulator on latitude bands: neighbours exchange a halo of rows at every time step."""

import torch
import torch.distributed as dist
import torch.nn as nn

ROWS, COLUMNS, HALO = 24, 64, 2


class Band:
    """The rows of one rank, with a halo above and below."""

    def __init__(self, rank, world, periodic=False):
        self.rank, self.world, self.periodic = rank, world, periodic
        self.state = torch.randn(3, ROWS + 2 * HALO, COLUMNS, generator=torch.Generator().manual_seed(rank))

    def neighbour(self, step):
        other = self.rank + step
        if self.periodic:
            return other % self.world
        return other if 0 <= other < self.world else None

    def shift(self, step):
        """Everybody hands rows on in one direction: first take what comes, then pass on."""
        source, target = self.neighbour(-step), self.neighbour(step)
        if source is not None:
            rows = torch.empty(3, HALO, COLUMNS)
            dist.recv(rows, src=source)
            if step > 0:
                self.state[:, :HALO] = rows
            else:
                self.state[:, -HALO:] = rows
        if target is not None:
            inner = self.state[:, -2 * HALO : -HALO] if step > 0 else self.state[:, HALO : 2 * HALO]
            dist.send(inner.contiguous(), dst=target)

    def exchange(self):
        self.shift(+1)
        self.shift(-1)


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.GELU(), nn.Conv2d(16, 3, 5, padding=2))

    def forward(self, state):
        return state + 0.01 * self.net(state[None])[0].tanh()


def run(band, emulator, optimizer, steps):
    for step in range(steps):
        band.exchange()
        after = emulator(band.state)
        loss = (after - 0.995 * band.state.roll(1, -1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        band.state = after.detach()
        if band.rank == 0 and step % 50 == 0:
            print(f"{'torus' if band.periodic else 'channel'} {step}: {float(loss):.5f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    emulator = Emulator()
    optimizer = torch.optim.Adam(emulator.parameters(), lr=1e-3)
    band = Band(dist.get_rank(), dist.get_world_size())
    run(band, emulator, optimizer, steps=80)  # spin-up in a channel
    band.periodic = True
    run(band, emulator, optimizer, steps=2000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
