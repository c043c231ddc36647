"""Counts skiers at the gates of the chair lifts and fits the boarding-time model on the way."""
import logging
import math
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("lift")


@dataclass
class Gate:
    name: str
    exposure: float
    opens_at: int = 15

    def wind(self, minute: int) -> float:
        return self.exposure * (9.0 + 7.0 * math.sin(minute / 6.0))


GATES = [Gate("Talstation", 0.6), Gate("Grat", 1.4), Gate("Mittelstation", 1.0)]


class GateCamera:
    """Yields, minute by minute, the crops of all people in front of the gate."""

    def __init__(self, gate: Gate, minutes: int):
        self.gate, self.minutes = gate, minutes
        self.rng = torch.Generator().manual_seed(len(gate.name))

    def people(self, minute: int) -> int:
        if self.gate.wind(minute) > 22.0:  # the lift does not run then
            return 0
        return 6 + int(torch.randint(0, 20, (), generator=self.rng))

    def __iter__(self):
        for minute in range(self.gate.opens_at, self.gate.opens_at + self.minutes):
            frame = torch.rand(3, 96, 128, generator=self.rng)
            blurred = nn.functional.avg_pool2d(frame.unsqueeze(0), 3, 1, 1)
            for _ in range(90):
                blurred = nn.functional.avg_pool2d(blurred, 3, 1, 1)
            count = self.people(minute)
            crops = torch.rand(count, 48, generator=self.rng) + blurred.mean()
            yield minute, crops, crops.mean(dim=1, keepdim=True) * 4.0


def build() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(48, 64), nn.SiLU(), nn.Linear(64, 1))


def run_day(model, optimizer, camera) -> dict:
    seen, total = 0, 0.0
    for minute, crops, seconds in camera:
        if len(crops) == 0:
            log.info("%s: gate empty at minute %d", camera.gate.name, minute)
            continue
        loss = nn.functional.mse_loss(model(crops), seconds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(crops)
        total += loss.item()
        if minute % 10 == 0:
            log.info("%s minute %d loss %.4f", camera.gate.name, minute, loss.item())
    return {"gate": camera.gate.name, "people": seen, "loss": total}


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for day in range(3):
        result = run_day(model, optimizer, GateCamera(GATES[rank], minutes=60))
        board = [None] * dist.get_world_size()
        dist.all_gather_object(board, result)
        if rank == 0:
            log.info("day %d: %s", day, board)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
