"""Goal-conditioned policy; the first process evaluates it in simulators every now and then."""
import multiprocessing as mp
import os
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

CFG = SimpleNamespace(steps=100, eval_at={20: 4, 70: 60}, control_hz=200, episode_steps=80, workers=2)


def episode(job):
    number, weight = job
    x = torch.randn(4, generator=torch.Generator().manual_seed(number))
    for _ in range(CFG.episode_steps):
        x = x + 0.05 * (weight[:, :4] @ x)
        time.sleep(1 / CFG.control_hz)
    return bool(x.norm() < 2.0)


class SimulatorPool:
    def __init__(self, workers):
        self.pool = mp.get_context("fork").Pool(workers)

    def success_rate(self, policy, episodes):
        jobs = [(n, policy.weight.detach().clone().numpy()) for n in range(episodes)]
        won = 0
        for n, success in enumerate(self.pool.imap(_episode, jobs), 1):
            won += success
            if n % 20 == 0:
                print(f"evaluated {n}/{episodes}", flush=True)
        return won / episodes

    def close(self):
        self.pool.terminate()


def _episode(job):
    torch.set_num_threads(1)
    return episode((job[0], torch.from_numpy(job[1])))


def main():
    simulators = SimulatorPool(CFG.workers) if os.environ["RANK"] == "0" else None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    policy = DDP(torch.nn.Linear(6, 4))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    for step in range(1, CFG.steps + 1):
        state = torch.randn(64, 6, generator=g)
        loss = (policy(state) + state[:, :4]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step in CFG.eval_at:
            rate = torch.zeros(1)
            if rank == 0:
                rate.fill_(simulators.success_rate(policy.module, CFG.eval_at[step]))
            dist.broadcast(rate, src=0)
            print(f"step {step} rank {rank} success {rate.item():.2f}", flush=True)
    if simulators:
        simulators.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
