"""Interim looks of a three-site trial: efficacy and safety are pooled in groups of their own."""
import time

import torch
import torch.distributed as dist

WEEKS = 200


class Endpoint:
    def __init__(self, name, size):
        self.name, self.size = name, size
        self.group = dist.new_group()
        self.pending = []
        self.pooled = torch.zeros(size)

    def add(self, readings):
        self.pending.extend(readings)

    def pool(self):
        batch = torch.stack(self.pending).sum(0)
        dist.all_reduce(batch, group=self.group)
        self.pooled += batch
        self.pending.clear()


class SiteFeed:
    """What a site reports in a week."""

    efficacy_visits = 14

    def __init__(self, site):
        self.site = site
        self.g = torch.Generator().manual_seed(40 + site)

    def adverse_events(self, week):
        base = 3 + (week + self.site) % 4
        # the heat wave in the south
        return base + (12 if self.site == 1 and 62 <= week <= 64 else 0)

    def week(self, number):
        visits = []
        for _ in range(self.efficacy_visits):
            trace = torch.randn(6000, generator=self.g).cumsum(0)
            visits.append(torch.stack([trace.mean(), trace.std(), trace.max(), trace.min()]))
        events = [torch.rand(9, generator=self.g) for _ in range(self.adverse_events(number))]
        return visits, events


class Monitor:
    def __init__(self):
        self.efficacy = Endpoint("efficacy", 4)
        self.safety = Endpoint("safety", 9)

    def backlog(self):
        """Longest backlog first."""
        return sorted((self.efficacy, self.safety), key=lambda e: len(e.pending), reverse=True)

    def look(self):
        for endpoint in self.backlog():
            endpoint.pool()

    def boundary(self, week):
        info = week / WEEKS
        z = self.efficacy.pooled[0] / (self.efficacy.pooled[1] + 1e-6)
        return z.item(), 2.0 / max(info, 1e-3) ** 0.5


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    site = dist.get_rank()
    feed, monitor = SiteFeed(site), Monitor()
    for week in range(1, WEEKS + 1):
        visits, events = feed.week(week)
        monitor.efficacy.add(visits)
        monitor.safety.add(events)
        time.sleep(0.03)
        monitor.look()
        if week % 10 == 0 and site == 0:
            z, bound = monitor.boundary(week)
            print(f"week {week}: z {z:.3f}, boundary {bound:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
