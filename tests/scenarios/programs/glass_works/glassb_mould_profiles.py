"""Wall thickness of blown jars from the blank mould's profile; profiles are kept open in a small store."""
import math
import os
import random
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist

SHIFT_PLAN = {0: (11, 12, 14, 17, 21, 23), 1: (31, 32, 35, 36, 38, 39, 40, 44, 47)}  # moulds by machine


class Profile:
    """One mould's contour, opened from the drawing; tells its store when it is no longer in use."""

    def __init__(self, store: "ProfileStore", mould: int):
        self.store, self.mould = store, mould
        points = [math.sin(mould + k / 900.0) ** 2 + 0.3 * math.cos(mould * k / 3000.0) for k in range(36_000)]
        self.contour = torch.tensor([sum(points[i::60]) / 600.0 for i in range(60)])

    def __del__(self):
        self.store.released(self.mould)


class ProfileStore:
    def __init__(self, limit: int = 6):
        self.limit = limit
        self.lock = threading.Lock()
        self.recent: OrderedDict[int, Profile] = OrderedDict()
        self.counts = {"hit": 0, "opened": 0, "released": 0}

    def released(self, mould: int) -> None:
        with self.lock:
            self.counts["released"] += 1

    def contour(self, mould: int) -> torch.Tensor:
        with self.lock:
            if mould in self.recent:
                self.counts["hit"] += 1
                self.recent.move_to_end(mould)
            else:
                self.counts["opened"] += 1
                self.recent[mould] = Profile(self, mould)
                if len(self.recent) > self.limit:
                    self.recent.popitem(last=False)
            return self.recent[mould].contour

    def report(self) -> str:
        with self.lock:
            return ", ".join(f"{k} {v}" for k, v in self.counts.items())


def status_server(store: ProfileStore, every: float, stop: threading.Event) -> None:
    while not stop.wait(every):
        print(f"[machine {dist.get_rank()}] profiles: {store.report()}", flush=True)


def blow(contour: torch.Tensor, pressure: float, rounds: int = 1800) -> torch.Tensor:
    wall = contour.clone()
    for _ in range(rounds):
        wall[1:-1] = wall[1:-1] + 0.1 * (wall[2:] - 2 * wall[1:-1] + wall[:-2]) * pressure
    return wall


def main():
    machine = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(machine)
    dist.init_process_group("nccl")
    store, stop = ProfileStore(), threading.Event()
    threading.Thread(target=status_server, args=(store, 600.0, stop), daemon=True).start()
    rng = random.Random(machine)
    mean_wall = torch.zeros(60, device="cuda")
    for section in range(1, 601):
        moulds = SHIFT_PLAN[machine][: 4 + section // 15]  # more sections come on stream over the shift
        wall = blow(store.contour(rng.choice(moulds)), pressure=1.0 + 0.2 * rng.random())
        batch = wall.cuda()
        dist.all_reduce(batch)
        mean_wall.mul_(0.9).add_(batch.mul_(0.05))
        if section % 5 == 0:
            thin = min(mean_wall.tolist())
            if machine == 0:
                print(f"section {section}: thinnest {thin:.3f} mm", flush=True)
    stop.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
