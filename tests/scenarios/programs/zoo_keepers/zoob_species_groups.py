"""One vocal model for several zoos: the first process only mixes, the other two keep the recordings and exchange statistics
per species group, the loudest group first."""
import logging
from collections import Counter
from types import SimpleNamespace

import torch
import torch.distributed as dist

log = logging.getLogger("calls")
CONFIG = SimpleNamespace(steps=300, calls=16000, bands=64, sync_every=15, groups=("primates", "birds"))


class Recorder:
    """Microphones of one zoo. Calls arrive as (group, spectrum)."""

    def __init__(self, rank):
        self.rank = rank
        self.heard = Counter()

    def mixture(self, step):
        """Share of primate calls; at the second zoo the birds get louder as spring comes on."""
        spring = step / CONFIG.steps
        return 0.72 if self.rank == 1 else 0.72 - 0.75 * spring

    def hour(self, step):
        g = torch.Generator().manual_seed(step * 3 + self.rank)
        primate = torch.rand(CONFIG.calls, generator=g) < self.mixture(step)
        spectrum = torch.randn(CONFIG.calls, CONFIG.bands, generator=g).abs()
        spectrum = torch.nn.functional.avg_pool1d(spectrum[:, None], 5, 1, 2)[:, 0]
        self.heard = Counter({"primates": int(primate.sum()), "birds": int((~primate).sum())})
        return {"primates": spectrum[primate], "birds": spectrum[~primate]}


class GroupProfiles:
    def __init__(self, channels):
        self.channels = channels
        self.profile = {name: torch.zeros(CONFIG.bands) for name in channels}
        self.pending = {name: torch.zeros(CONFIG.bands + 1) for name in channels}

    def add(self, calls):
        for name, spectra in calls.items():
            self.pending[name][:-1] += spectra.sum(0)
            self.pending[name][-1] += len(spectra)

    def exchange(self, heard):
        for name, _ in heard.most_common():
            total = self.pending[name]
            dist.all_reduce(total, group=self.channels[name])
            self.profile[name] = total[:-1] / total[-1].clamp(min=1)
            total.zero_()


def mix(weights):
    desks = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(desks, weights)
    return desks[0]


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    channels = {name: dist.new_group([1, 2]) for name in CONFIG.groups}
    weights = torch.ones(CONFIG.bands)
    recorder, profiles = Recorder(rank), GroupProfiles(channels)
    for step in range(1, CONFIG.steps + 1):
        if rank == 0:
            weights = torch.linalg.svd(torch.randn(220, CONFIG.bands), full_matrices=False).S.softmax(0)
        else:
            profiles.add({k: v * weights for k, v in recorder.hour(step).items()})
            if step % CONFIG.sync_every == 0:
                profiles.exchange(recorder.heard)
        weights = mix(weights.contiguous())
        if rank == 1 and step % 30 == 0:
            log.info("hour %d %s", step, {n: round(p.mean().item(), 4) for n, p in profiles.profile.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
