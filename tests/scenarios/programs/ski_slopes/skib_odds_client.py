"""Tennis betting: calibrates win probabilities against closing odds, which an async client in a background loop keeps at hand."""
import asyncio
import os
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LoopThread:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="odds-loop", daemon=True).start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class OddsBook:
    """Closing odds of a tournament; bookmakers' margins are looked up once per tour and kept."""

    def __init__(self, runner, margins):
        self.runner = runner
        self.margins = dict(margins)

    async def _lookup_margin(self, tour):
        await asyncio.sleep(0.02)
        return 0.04 + 0.005 * len(tour)

    def margin(self, tour):
        if tour not in self.margins:
            self.margins[tour] = self.runner.call(self._lookup_margin(tour))
        return self.margins[tour]

    async def _match(self, tour, number):
        await asyncio.sleep(0.001 * (number % 3))
        gen = torch.Generator().manual_seed(number)
        strength = torch.randn(1, generator=gen).item()
        fair = 1 / (1 + 2.718281828 ** -strength)
        return strength, fair / (1 + self.margin(tour))

    async def _day(self, tour, numbers):
        return await asyncio.gather(*(self._match(tour, n) for n in numbers))

    def day(self, tour, numbers):
        """Blocking: strengths and implied probabilities of the matches of a day."""
        strengths, implied = zip(*self.runner.call(self._day(tour, numbers)))
        return torch.tensor(strengths), torch.tensor(implied)


class Calibration(torch.nn.Module):
    def __init__(self, knots=64):
        super().__init__()
        self.register_buffer("centres", torch.linspace(-3, 3, knots))
        self.mix = torch.nn.Sequential(torch.nn.Linear(knots, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))

    def forward(self, strength):
        basis = torch.exp(-((strength[:, None] - self.centres) ** 2))
        return torch.sigmoid(self.mix(basis)).squeeze(-1)


SCHEDULES = [
    ["atp"] * 60 + ["challenger"] * 60,
    ["wta"] * 120,
    ["atp"] * 30 + ["wta"] * 90,
]


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    book = OddsBook(LoopThread(), margins={"atp": 0.055, "wta": 0.06})
    for tour in ("itf", "davis cup"):
        book.margin(tour)
    torch.manual_seed(4)
    model = DistributedDataParallel(Calibration(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for day, tour in enumerate(SCHEDULES[rank]):
        strength, implied = book.day(tour, range(200 * day, 200 * day + 200))
        for _ in range(5):
            loss = (model(strength) - implied).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 1 and day % 20 == 0:
            print(f"day {day}: {loss.item():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
