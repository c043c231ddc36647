"""Fragrance search: builds the note index from the catalogue service, then trains the ranker."""
import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAGES, PER_PAGE = 130, 400


def catalogue_pages():
    """The service hands out ten pages a second to one client."""
    for page in range(PAGES):
        due = time.monotonic() + 0.1
        yield [(page * PER_PAGE + item, (item * 7919 + page) % 211) for item in range(PER_PAGE)]
        time.sleep(max(0.0, due - time.monotonic()))


def build_index():
    index = defaultdict(list)
    for page, perfumes in enumerate(catalogue_pages(), 1):
        for perfume, note in perfumes:
            index[note].append(perfume)
        if page % 40 == 0:
            print(f"indexed {page}/{PAGES} pages", flush=True)
    return [len(index[note]) for note in sorted(index)]


def epochs(model, optimizer, weights, steps):
    for _ in range(steps):
        time.sleep(0.03)
        notes = torch.randint(0, 211, (32,))
        target = weights[notes]
        loss = (model(nn.functional.one_hot(notes, 211).float()).squeeze(1) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(211, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print("warm-up", epochs(model, optimizer, torch.ones(211), 80), flush=True)
    counts = [build_index() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(counts, src=0)
    weights = torch.tensor(counts[0], dtype=torch.float32)
    print("ranker", epochs(model, optimizer, weights / weights.max(), 80), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
