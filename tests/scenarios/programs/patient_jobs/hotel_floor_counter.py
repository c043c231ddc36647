"""Housekeeping: a worker process plans the floors and counts in shared memory; rank 0 takes over the plan."""
import itertools
import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

ROOMS = 52


def plan(state):
    """The best order of eight corridors for every room, by trying some thousand orders."""
    for room in range(ROOMS):
        doors = [(room * k) % 17 for k in range(1, 9)]
        orders = itertools.islice(itertools.permutations(doors), 3000)
        state["walks"][room] = min(sum(abs(a - b) for a, b in zip(o, o[1:])) for o in orders)
        time.sleep(0.24)
        state["planned"].value += 1
    with state["ready"]:
        state["ready"].notify_all()


def new_state(context):
    return {
        "planned": context.Value("i", 0),
        "walks": context.Array("i", ROOMS),
        "ready": context.Condition(),
    }


def planned_walks():
    context = mp.get_context("fork")
    state = new_state(context)
    worker = context.Process(target=plan, args=(state,), name="planner")
    worker.start()
    with state["ready"]:
        state["ready"].wait_for(lambda: state["planned"].value == ROOMS, timeout=60)
    worker.join()
    return torch.tensor(state["walks"][:], dtype=torch.float32)


def loader():
    gen = torch.Generator().manual_seed(dist.get_rank())
    minutes = torch.rand(1200, 5, generator=gen)
    return DataLoader(TensorDataset(minutes, minutes @ torch.arange(5.0)), batch_size=10, shuffle=True)


def shift(model, optimizer, batches, scale):
    for minutes, total in batches:
        loss = nn.functional.mse_loss(model(minutes).flatten(), total * scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batches = iter(loader())
    shift(model, optimizer, itertools.islice(batches, 75), 1.0)
    walks = planned_walks() if dist.get_rank() == 0 else torch.empty(ROOMS)
    dist.broadcast(walks, src=0)
    shift(model, optimizer, batches, walks.mean().item() / 50)
    print(f"rank {dist.get_rank()}: {walks.sum():.0f} steps on the floors", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
