"""Speeds of probe vehicles: linear models of speed by road class, averaged over the fleets of the city."""
import logging
import os
import threading

import torch
import torch.distributed as dist

log = logging.getLogger("probes")

NETWORK = 200_000  # directed edges
FLEETS = [
    {"name": "taxis", "edges": 100, "events": {}},
    {"name": "couriers", "edges": 100, "events": {45: 260}},  # from a step on, this many edges
    {"name": "buses", "edges": 100, "events": {}},
]


class Profile:
    def __init__(self, cache):
        self.cache = cache
        self.count, self.total = 0, 0.0

    def __del__(self):
        self.cache.retire(self.count, self.total)


class SpeedCache:
    """Profiles by edge. The dashboard reads the totals from another thread, so access is guarded."""

    def __init__(self, limit=3000):
        self.limit = limit
        self.lock = threading.Lock()
        self.rows = {}
        self.retired, self.retired_total = 0, 0.0

    def put(self, edges, speeds):
        with self.lock:
            for edge, speed in zip(edges, speeds):
                if edge not in self.rows:
                    self.rows[edge] = Profile(self)
                self.rows[edge].count += 1
                self.rows[edge].total += speed
            if len(self.rows) > self.limit:
                for edge in sorted(self.rows, key=lambda e: self.rows[e].count)[:self.limit // 4]:
                    del self.rows[edge]

    def retire(self, count, total):
        with self.lock:
            self.retired += count
            self.retired_total += total

    def publish(self):
        with self.lock:
            rows, self.rows = self.rows, {}
        published = len(rows)
        rows.clear()
        return published

    def mean(self):
        with self.lock:
            return self.retired_total / max(self.retired, 1)


def dashboard(cache, closed):
    while not closed.wait(1.0):
        log.debug("mean speed %.1f km/h", cache.mean())


class Fleet:
    def __init__(self, number):
        self.profile = FLEETS[number % len(FLEETS)]
        self.rng = torch.Generator().manual_seed(number)
        self.edges = self.profile["edges"]

    def observe(self, step):
        self.edges = self.profile["events"].get(step, self.edges)
        edges = torch.randint(0, NETWORK, (self.edges,), generator=self.rng)
        speeds = 15 + 50 * torch.rand(self.edges, generator=self.rng)
        design = torch.randn(16000, 48, generator=self.rng)
        observed = design[:, :5].sum(1, keepdim=True) + 40
        weights = torch.linalg.lstsq(design, observed).solution.squeeze(1)
        return edges.tolist(), speeds.tolist(), weights


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    fleet, cache = Fleet(dist.get_rank()), SpeedCache()
    closed = threading.Event()
    threading.Thread(target=dashboard, args=(cache, closed), daemon=True, name="dashboard").start()
    for step in range(400):
        edges, speeds, weights = fleet.observe(step)
        cache.put(edges, speeds)
        shared = weights.cuda()
        dist.all_reduce(shared)
        weights = shared.cpu() / world
        if step % 20 == 19:
            log.info("%s: step %d, %d edges, first weight %.3f", fleet.profile["name"], step, cache.publish(), weights[0].item())
    closed.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
