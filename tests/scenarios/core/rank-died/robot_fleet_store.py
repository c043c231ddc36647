"""Fleet learning: arms post trajectories through a key-value store, every arm trains on all of them."""
import io
import os
import resource
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ARMS = 3
CPU_QUOTA = {2: 2}  # seconds; the third arm shares its computer with the motion planner


class TrajectoryBoard:
    def __init__(self, store):
        self.store = store

    def post(self, arm, round_, trajectory):
        buffer = io.BytesIO()
        torch.save(trajectory, buffer)
        self.store.set(f"trajectory/{round_}/{arm}", buffer.getvalue())

    def collect(self, round_):
        keys = [f"trajectory/{round_}/{arm}" for arm in range(ARMS)]
        self.store.wait(keys, timedelta(hours=1))
        return [torch.load(io.BytesIO(self.store.get(k))) for k in keys]


class TactileMap:
    """Dense contact history; grows with every contact."""

    def __init__(self, per_contact):
        self.per_contact, self.layers = per_contact, []

    def contact(self):
        self.layers.append(bytearray(os.urandom(4096)) * self.per_contact)


def simulate(arm, round_, policy):
    g = torch.Generator().manual_seed(arm * 1000 + round_)
    x = torch.randn(20, 6, generator=g)
    with torch.no_grad():
        return {"x": x, "u": policy(x) + 0.1 * torch.randn(20, 2, generator=g)}


def arm_main(arm, port):
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(hours=1))
    dist.init_process_group("gloo", store=dist.PrefixStore("pg", store), rank=arm, world_size=ARMS)
    board = TrajectoryBoard(dist.PrefixStore("board", store))
    policy = torch.nn.Linear(6, 2)
    for p in policy.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    history = TactileMap(per_contact=64 if arm != 2 else 40960)
    if arm in CPU_QUOTA:
        quota = int(time.process_time()) + CPU_QUOTA[arm]
        resource.setrlimit(resource.RLIMIT_CPU, (quota, quota))
    for round_ in range(400):
        board.post(arm, round_, simulate(arm, round_, policy))
        for trajectory in board.collect(round_):
            loss = (policy(trajectory["x"]) - 0.9 * trajectory["u"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        history.contact()
        if len(history.layers) > 2:
            history.layers.clear()
        if arm == 0 and round_ % 10 == 0:
            print(f"round {round_} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    master = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arms = [mp.get_context("spawn").Process(target=arm_main, args=(arm, master.port)) for arm in range(ARMS)]
    for p in arms:
        p.start()
    for p in arms:
        p.join()
