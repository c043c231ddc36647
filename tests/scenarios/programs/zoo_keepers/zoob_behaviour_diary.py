"""Online clustering of behaviour snippets (keepers' tablets). The first process keeps a diary, of which the zoo's dashboard
wants a fresh copy every few seconds."""
import argparse
import collections
import json
import os
import signal
import tempfile
import threading

import torch
import torch.distributed as dist

BEHAVIOURS = ["rest", "forage", "groom", "pace", "play", "swim", "display", "hide"]


class Diary:
    """Rolling statistics of the assignments; written by the training loop, read by the dashboard's alarm."""

    def __init__(self, path, keep=40_000):
        self.path, self.keep = path, keep
        self._lock = threading.Lock()
        self._entries = collections.deque(maxlen=keep)
        self._daily = collections.Counter()

    def append(self, step, labels, distances):
        with self._lock:
            self._entries.extend((d, l, step) for l, d in zip(labels, distances))
            self._daily.update(labels)
            ranked = sorted(self._entries)
            self._typical = {BEHAVIOURS[l]: d for d, l, _ in ranked[len(ranked) // 2 :: 997]}
            self._odd = [(round(d, 3), BEHAVIOURS[l], s) for d, l, s in ranked[-5:]]

    def publish(self):
        with self._lock:
            page = {"total": {BEHAVIOURS[k]: v for k, v in self._daily.items()}, "odd": list(self._odd)}
        with open(self.path + ".new", "w") as out:
            json.dump(page, out)
        os.replace(self.path + ".new", self.path)

    def publish_every(self, first, seconds):
        def alarm(signum, frame):
            self.publish()
            signal.setitimer(signal.ITIMER_REAL, seconds)

        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, first)


class Centres:
    def __init__(self, k, dim):
        torch.manual_seed(8)
        self.mu = torch.randn(k, dim)
        self.mass = torch.ones(k)

    def update(self, x):
        distance, label = torch.cdist(x, self.mu).min(1)
        k, dim = self.mu.shape
        stats = torch.zeros(k, dim + 1)
        stats.index_add_(0, label, torch.cat([x, torch.ones(len(x), 1)], 1))
        dist.all_reduce(stats)
        self.mass = 0.95 * self.mass + stats[:, -1]
        self.mu += (stats[:, :-1] - stats[:, -1:] * self.mu) / self.mass[:, None]
        return label, distance


def snippets(tablet, step, n, dim):
    g = torch.Generator().manual_seed(tablet * 65_537 + step)
    return torch.randn(n, dim, generator=g) + 2 * torch.randint(0, 3, (n, 1), generator=g)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--snippets", type=int, default=2500)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--dashboard-seconds", type=float, default=1.7)
    args = p.parse_args()
    dist.init_process_group("gloo")
    tablet = dist.get_rank()
    centres = Centres(len(BEHAVIOURS), args.dim)
    diary = None
    if tablet == 0:
        diary = Diary(os.path.join(tempfile.mkdtemp(prefix="diary"), "today.json"))
    for step in range(args.steps):
        label, distance = centres.update(snippets(tablet, step, args.snippets, args.dim))
        if diary is not None:
            diary.append(step, label.tolist(), distance.tolist())
            if step == 10:
                diary.publish_every(3.0, args.dashboard_seconds)
            if step % 50 == 0:
                print(f"step {step}, spread {distance.mean():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
