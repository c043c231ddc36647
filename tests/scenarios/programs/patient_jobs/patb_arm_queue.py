"""Learner for a pick-and-place arm: offline steps, then the first online episode comes over a queue from the actor."""
import multiprocessing
import os
import random
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as tmp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 3
EPISODE = 17
OBS, ACT = 9, 4


def actor(queue, go):
    """Real arm: a move and a grasp check take most of a second."""
    go.wait()
    rng = random.Random(11)
    for _ in range(EPISODE):
        time.sleep(rng.uniform(0.7, 0.9))
        obs = [rng.gauss(0, 1) for _ in range(OBS)]
        queue.put((obs, [sum(obs[a::ACT]) for a in range(ACT)]))
    queue.put(None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def update(policy, opt, obs, act, n):
    for _ in range(n):
        pick = torch.randint(0, len(obs), (16,))
        loss = nn.functional.smooth_l1_loss(policy(obs[pick]), act[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.08)
    return loss.item()


def learner(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if rank == 0:
        ctx = multiprocessing.get_context("fork")
        queue, go = ctx.Queue(), ctx.Event()
        ctx.Process(target=actor, args=(queue, go), daemon=True).start()
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    policy = DDP(nn.Sequential(nn.Linear(OBS, 32), nn.ReLU(), nn.Linear(32, ACT)))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    obs, act = torch.randn(200, OBS), torch.randn(200, ACT)
    update(policy, opt, obs, act, 35)

    online_obs, online_act = torch.zeros(EPISODE, OBS), torch.zeros(EPISODE, ACT)
    if rank == 0:
        go.set()
        for i, (o, a) in enumerate(iter(queue.get, None)):
            online_obs[i], online_act[i] = torch.tensor(o), torch.tensor(a)
    dist.broadcast(online_obs, 0)
    dist.broadcast(online_act, 0)
    loss = update(policy, opt, torch.cat([obs, online_obs]), torch.cat([act, online_act]), 40)
    print(f"learner {rank} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    tmp.spawn(learner, args=(free_port(),), nprocs=WORLD)
