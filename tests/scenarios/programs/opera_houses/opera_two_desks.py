"""Balances strings and winds: two desks, each with a process group of its own for its averages."""
from __future__ import annotations

import torch
import torch.distributed as dist

BANDS, ROUNDS = 96, 160
# minutes into the evening at which the horns come in, seen from the microphones of each process
HORNS = {0: 91, 1: 500, 2: 500}


def open_desks(names):
    return {name: dist.new_group(list(range(dist.get_world_size()))) for name in names}


def listen(rank: int, minute: int, g: torch.Generator) -> dict[str, torch.Tensor]:
    """Band levels of both sections in this minute."""
    strings = torch.randn(120, 8192, generator=g)
    winds = torch.randn(120, 8192, generator=g) * 0.6
    if minute >= HORNS[rank]:
        winds = winds * 3
    bands = {}
    for section, wave in (("strings", strings), ("winds", winds)):
        power = torch.fft.rfft(wave).abs().square()[:, 1:961]
        bands[section] = power.reshape(120, BANDS, -1).mean((0, 2))
    return bands


def by_urgency(bands, gains):
    """Sections in the order in which they need attention: the loudest first."""
    level = {section: (gains[section] * power).sum().item() for section, power in bands.items()}
    return sorted(level, key=level.get, reverse=True)


def balance(section, power, gain, group, pull=0.05):
    average = torch.log(gain * power)
    dist.all_reduce(average, group=group)
    average /= dist.get_world_size()
    gain *= torch.exp(pull * (average.mean() - average))
    return average


def evening():
    rank = dist.get_rank()
    desks = open_desks(["strings", "winds"])
    gains = {section: torch.ones(BANDS) for section in desks}
    g = torch.Generator().manual_seed(40 + rank)
    spread = {}
    for minute in range(ROUNDS):
        bands = listen(rank, minute, g)
        for section in by_urgency(bands, gains):
            average = balance(section, bands[section], gains[section], desks[section])
            spread[section] = average.std().item()
        if minute % 20 == 0 and rank == 0:
            print(minute, {k: round(v, 4) for k, v in spread.items()}, flush=True)
    final = torch.stack([gains[s] for s in sorted(gains)])
    dist.broadcast(final, src=0)
    return final


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    evening()
    dist.destroy_process_group()
