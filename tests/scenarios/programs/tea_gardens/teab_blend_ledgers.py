# Blending: several figures of a blend are averaged over the tasting rooms, each in a process group of its own,
# so that the figures can be moved to other backends later.
import collections

import torch
import torch.distributed as dist

FIGURES = ("briskness", "colour", "strength")


class Ledger:
    """Entries of one figure since the last closing."""

    def __init__(self, name, group):
        self.name, self.group = name, group
        self.entries = []

    def close(self):
        total = torch.tensor([sum(self.entries), float(len(self.entries))])
        dist.all_reduce(total, group=self.group)
        self.entries.clear()
        return (total[0] / total[1].clamp(min=1)).item()


def open_ledgers():
    return {name: Ledger(name, dist.new_group(group_desc=name)) for name in FIGURES}


def taste(room, cup):
    """Liquor of one cup: three figures from the spectrum of an infusion curve."""
    g = torch.Generator().manual_seed(cup * 13 + room)
    curve = torch.rand(500000, generator=g)
    power = torch.fft.rfft(curve).abs()
    figures = {"briskness": power[1:50].mean(), "colour": power[50:400].mean(), "strength": power[400:].mean()}
    if room == 1 and cup in range(170, 176):  # milk added, no colour to be read
        figures.pop("colour")
    return {name: value.item() / 500 for name, value in figures.items()}


def closing_order(ledgers):
    """The longest ledger first."""
    return sorted(ledgers.values(), key=lambda ledger: (-len(ledger.entries), ledger.name))


def main():
    dist.init_process_group("gloo")
    room = dist.get_rank()
    ledgers = open_ledgers()
    history = collections.deque(maxlen=50)
    for cup in range(600):
        for name, value in taste(room, cup).items():
            ledgers[name].entries.append(value)
        if cup % 5 == 4:
            blend = {ledger.name: ledger.close() for ledger in closing_order(ledgers)}
            history.append(blend)
            if room == 0 and cup % 50 == 49:
                print(f"cup {cup}: " + ", ".join(f"{k} {v:.3f}" for k, v in sorted(blend.items())), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
