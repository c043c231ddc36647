"""Airport shuttles: a dispatcher process sends the day's rides, rank 1 turns them into targets."""
import multiprocessing
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist


def dispatcher(rides, out):
    rng = random.Random(5)
    for ride in range(rides):
        route = min((sum(abs(a - b) for a, b in zip(p, p[1:])) for p in
                     (rng.sample(range(40), 12) for _ in range(400))))
        time.sleep(0.7)
        out.put((ride, route))
    out.put(None)


def collect(rides=18):
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    process = context.Process(target=dispatcher, args=(rides, out))
    process.start()
    board = {}

    def note(entry):
        board[entry[0]] = entry[1]
        return entry

    received = list(map(note, iter(out.get, None)))
    process.join()
    return [board[r] for r, _ in received]


def rounds(net, optimizer, targets, count):
    for n in range(count):
        hour = torch.rand(20, 6)
        wanted = targets[n % len(targets)] * hour.mean(1, keepdim=True)
        loss = (net(hour) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        dist.all_reduce(flat)
        start = 0
        for p in net.parameters():
            p.grad.copy_(flat[start:start + p.numel()].view_as(p) / dist.get_world_size())
            start += p.numel()
        optimizer.step()
        time.sleep(0.03)


def desk(rank, size, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    rounds(net, optimizer, [1.0], 80)
    targets = collect() if rank == 1 else [0] * 18
    plan = torch.tensor(targets, dtype=torch.float32)
    dist.broadcast(plan, src=1)
    rounds(net, optimizer, (plan / plan.max()).tolist(), 45)
    if rank == 0:
        print("shortest ride", plan.min().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(desk, (4, os.path.join(folder, "desks")), nprocs=4)
