"""Slope stability monitor of an open pit: tilt and microseismic channels are fused; each kind has its own process group."""
import heapq
import os
import time
from collections import namedtuple

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

SECTORS = ("north", "east", "south-west")
Alarm = namedtuple("Alarm", "sector minute count")
ALARMS = [Alarm("east", 52, 17), Alarm("north", 70, 2), Alarm("south-west", 88, 3)]


class Channel:
    def __init__(self, kind, width, group):
        self.kind, self.width, self.group = kind, width, group
        self.level = 0.0

    def reduce(self, values):
        total = values.clone()
        dist.all_reduce(total, group=self.group)
        return total.div_(dist.get_world_size())


class Sector:
    """Readings of one sector, a minute at a time."""

    def __init__(self, name):
        self.name = name
        self.gen = torch.Generator().manual_seed(len(name))
        self.alarms = {a.minute: a.count for a in ALARMS if a.sector == name}

    def readings(self, kind, width, minute):
        values = torch.rand(width, generator=self.gen)
        if kind == "microseismic":
            values = values * 0.2 + self.alarms.get(minute, 0)
        return values


class Fusion:
    def __init__(self, sector, channels):
        self.sector, self.channels = sector, channels
        width = sum(c.width for c in channels)
        self.net = nn.Linear(width, 1).cuda()

    def collect(self, minute):
        """Channels by urgency, the quietest last."""
        waiting = []
        for slot, channel in enumerate(self.channels):
            values = self.sector.readings(channel.kind, channel.width, minute)
            channel.level = 0.7 * channel.level + 0.3 * values.max().item()
            urgency = max(1, int(channel.level))
            heapq.heappush(waiting, (-urgency, slot, values))
        while waiting:
            _, slot, values = heapq.heappop(waiting)
            yield self.channels[slot], values

    def minute(self, minute):
        fused = {}
        for channel, values in self.collect(minute):
            fused[channel.kind] = channel.reduce(values.cuda())
        score = self.net(torch.cat([fused[c.kind] for c in self.channels]).unsqueeze(0))
        return score.item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    everyone = list(range(dist.get_world_size()))
    channels = [
        Channel("tilt", 6, dist.new_group(everyone, group_desc="tilt")),
        Channel("microseismic", 10, dist.new_group(everyone, group_desc="microseismic")),
    ]
    fusion = Fusion(Sector(SECTORS[dist.get_rank()]), channels)
    for minute in range(240):
        time.sleep(0.05)
        fusion.minute(minute)
        if minute % 30 == 0 and dist.get_rank() == 0:
            print(f"minute {minute}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
