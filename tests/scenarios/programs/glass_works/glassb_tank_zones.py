"""Heat balance of a glass tank in three zones; neighbours swap the temperature of their common bridge."""
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Zone:
    name: str
    start: int  # thermocouples read whole degrees
    hold: int
    ramp: int

    def at(self, minute: int) -> int:
        return max(self.hold, self.start - self.ramp * minute)


TANK = (
    Zone("melter", start=1500, hold=1420, ramp=2),
    Zone("refiner", start=1420, hold=1420, ramp=0),
    Zone("forehearth", start=1290, hold=1290, ramp=0),
)


class Bridge:
    """Link to one neighbour. Glass flows from the hotter side, so that side speaks first."""

    def __init__(self, me: int, peer: int):
        self.me, self.peer = me, peer
        self.theirs = TANK[peer].start

    def swap(self, mine: int) -> int:
        outgoing = torch.tensor([mine], dtype=torch.int64, device="cuda")
        incoming = torch.zeros(1, dtype=torch.int64, device="cuda")
        if mine >= self.theirs:
            dist.send(outgoing, dst=self.peer)
            dist.recv(incoming, src=self.peer)
        else:
            dist.recv(incoming, src=self.peer)
            dist.send(outgoing, dst=self.peer)
        self.theirs = int(incoming.item())
        return self.theirs


def conduction(mine: int, theirs: int, cells: int = 400, sweeps: int = 60) -> float:
    """Flux through the bridge in kW, from a relaxed profile between both temperatures."""
    profile = torch.linspace(float(mine), float(theirs), cells, dtype=torch.float64)
    for _ in range(sweeps):
        profile[1:-1] = 0.5 * (profile[2:] + profile[:-2])
    return float(profile[0] - profile[1]) * 12.5


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    me, world = dist.get_rank(), dist.get_world_size()
    zone = TANK[me]
    bridges = [Bridge(me, peer) for peer in (me - 1, me + 1) if 0 <= peer < world]
    known = zone.start
    for minute in range(1, 481):
        flux = 0.0
        for bridge in bridges:
            flux += conduction(known, bridge.swap(known))
        time.sleep(0.05)
        known = zone.at(minute)
        if minute % 10 == 0:
            balance = torch.tensor([flux], dtype=torch.float64, device="cuda")
            dist.all_reduce(balance)
            total = balance.item()
            if me == 0:
                print(f"minute {minute}: {zone.name} at {known} C, balance {total:+.2f} kW", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
