"""Policy gradient for the anti-sway controllers of the ladle cranes; every rank drives the digital twin of one bay."""
import logging
import multiprocessing
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("ladle_crane")
RATE_HZ = 20


@dataclass(frozen=True)
class Bay:
    name: str
    rope: float       # m
    travel: float     # seconds of one transfer on the plant clock


BAYS = [Bay("charging", 11.0, 2.5), Bay("casting", 18.5, 14.5), Bay("slab-yard", 9.0, 3.0)]


def twin_main(conn, rope):
    """The twin integrates trolley and load; on the plant clock it keeps step with the PLC cycle."""
    while True:
        order = conn.recv()
        if order is None:
            return
        ticks, gains, plant_clock = order
        kp, kd = (max(-1.0, min(1.0, gain)) for gain in gains)
        angle, speed, peak, dt = 0.06, 0.0, 0.0, 0.002
        due = time.monotonic()
        for _ in range(ticks):
            for _ in range(25):
                push = -0.2 * kp * angle - 0.1 * kd * speed
                speed += (-9.81 / rope * angle + push - 0.05 * speed) * dt
                angle += speed * dt
                peak = max(peak, abs(angle))
            if plant_clock:
                due += 1.0 / RATE_HZ
                time.sleep(max(0.0, due - time.monotonic()))
        conn.send((angle, speed, peak))


class Twin:
    def __init__(self, bay):
        context = multiprocessing.get_context("fork")
        self.conn, theirs = context.Pipe()
        self.process = context.Process(target=twin_main, args=(theirs, bay.rope), daemon=True)
        self.process.start()

    def lift(self, seconds, gains, plant_clock=False):
        self.conn.send((int(seconds * RATE_HZ), gains, plant_clock))
        return self.conn.recv()

    def close(self):
        self.conn.send(None)
        self.process.join()


def improve(policy, optimizer, twin, state, lifts):
    for _ in range(lifts):
        batch = (torch.tensor([state]) + 0.02 * torch.randn(64, 3)).to("cuda")
        gains = policy(batch)
        state = twin.lift(150, gains[0].detach().cpu().tolist())
        cost = (gains.square().sum(dim=1) * state[2]).mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
    return state


def commission(policy, twin, bay, state):
    """One transfer per bay on the plant clock, as the safety file asks for; returns the peak sway of each."""
    with torch.no_grad():
        gains = policy.module(torch.tensor([state]).to("cuda"))[0].cpu().tolist()
    log.info("%s: transfer of %.1f s", bay.name, bay.travel)
    record = torch.tensor(twin.lift(bay.travel, gains, plant_clock=True)).to("cuda")
    records = [torch.zeros_like(record) for _ in BAYS]
    dist.all_gather(records, record)
    return [float(r[2]) for r in records]


def main():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    bay = BAYS[rank]
    twin = Twin(bay)
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(7 + rank)
    net = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
    policy = DistributedDataParallel(net.to("cuda"), device_ids=[local_rank])
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    state = improve(policy, optimizer, twin, (0.06, 0.0, 0.06), 45)
    log.info("%s: swing after pre-training %.4f", bay.name, state[2])
    peaks = commission(policy, twin, bay, state)
    log.info("peaks %s", ", ".join(f"{b.name} {p:.4f}" for b, p in zip(BAYS, peaks)))
    improve(policy, optimizer, twin, state, 25)
    twin.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
