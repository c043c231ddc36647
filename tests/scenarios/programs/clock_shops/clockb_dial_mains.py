"""Two kinds of statistics are shared by the ranks, each in a group of its own: of dials, and of the mains frequency."""
import dataclasses
import os

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False


@dataclasses.dataclass
class Channel:
    name: str
    group: object
    buffer: torch.Tensor
    pending: int = 0  # samples that wait to be shared

    def add(self, values):
        self.buffer[: len(values)] += values.to(self.buffer.device)
        self.pending += len(values)

    def share(self):
        dist.all_reduce(self.buffer, group=self.group)
        self.buffer.div_(dist.get_world_size())
        self.pending = 0


class Sampler:
    """Samples of one substation. Dials report at a fixed rate, the mains meter as often as it likes."""

    def __init__(self, rank):
        self.gen = torch.Generator().manual_seed(rank)
        self.rank = rank

    def dials(self):
        return self._filtered(40)

    def mains(self, step):
        storm = self.rank == 2 and 90 <= step < 110
        return self._filtered(64 if storm else 24)

    def _filtered(self, count):
        wave = torch.randn(80_000, generator=self.gen)
        return wave.sort().values[:count]


def most_urgent_first(channels):
    return sorted(channels, key=lambda c: c.pending, reverse=True)


def run():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = list(range(world))
    channels = [
        Channel(name, dist.new_group(everyone), torch.zeros(size, device="cuda"))
        for name, size in (("dials", 128), ("mains", 256))
    ]
    dials, mains = channels
    sampler = Sampler(rank)
    for step in range(240):
        dials.add(sampler.dials())
        mains.add(sampler.mains(step))
        if step % 3 == 2:
            for channel in most_urgent_first(channels):
                channel.share()
            level = mains.buffer.cpu().mean()
            if rank == 0 and step % 15 == 14:
                print(f"step {step}: level {float(level):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
