"""Operations desk of a waterworks: each process serves one plant, its duties run as coroutines."""
import asyncio
import hashlib
import json

import torch
import torch.distributed as dist

PLANTS = {
    0: {"name": "Riverside", "journal": 8, "backlog_from": 16},
    1: {"name": "Moor", "journal": 8, "backlog_from": None},
    2: {"name": "Springs", "journal": 8, "backlog_from": None},
}


class Plant:
    def __init__(self, rank):
        spec = PLANTS[rank % 3]
        self.rank = rank
        self.name = spec["name"]
        self.journal, self.backlog_from = spec["journal"], spec["backlog_from"]
        self.dose = torch.tensor([1.2, 0.8, 0.05])
        self.gen = torch.Generator().manual_seed(rank)

    def entries(self, shift):
        late = self.backlog_from is not None and shift >= self.backlog_from
        return self.journal * (120 if late else 1)


def digest(entries):
    """Checksums of the shift's journal, as the regulator wants them."""
    seal = b""
    for number in range(entries):
        line = json.dumps({"n": number, "seal": seal.hex()}) * 6
        seal = hashlib.pbkdf2_hmac("sha256", line.encode(), b"journal", 2000)
    return seal[0]


def settle(samples):
    """Jar test: residual turbidity for the current dose."""
    field = samples
    for _ in range(6000):
        field = field + 0.05 * (field.mean() - field)
    return field.std().view(1)


class Desk:
    def __init__(self, plant):
        self.plant = plant

    async def seal_journal(self, shift):
        seal = await asyncio.to_thread(digest, self.plant.entries(shift))
        codes = torch.full((1,), float(seal))
        await asyncio.to_thread(dist.all_reduce, codes)
        return codes.item()

    async def share_dose(self, shift):
        samples = torch.rand(4096, generator=self.plant.gen)
        residual = await asyncio.to_thread(settle, samples.repeat(4))
        self.plant.dose = self.plant.dose * (1.0 - 0.01 * residual)
        await asyncio.to_thread(dist.broadcast, self.plant.dose, 1)
        return residual.item()

    async def shift(self, number):
        seal, residual = await asyncio.gather(self.seal_journal(number), self.share_dose(number))
        return seal, residual


async def season(desk, shifts):
    for number in range(shifts):
        seal, residual = await desk.shift(number)
        if desk.plant.rank == 1:
            print(f"shift {number}: seals {seal:.0f}, residual {residual:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    desk = Desk(Plant(dist.get_rank()))
    asyncio.run(season(desk, 90))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
