"""Cross-validation of a proteomics classifier: folds differ in size, the number of batches is agreed on."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn as nn

FOLD_SIZES = [900, 1100, 1300]


def fold(rank):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(FOLD_SIZES[rank], 80, generator=generator)
    return x, (x[:, :10].sum(1) > 0).float()


def agreed(count):
    fewest = torch.tensor([count])
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
    return int(fewest)


def permutation_importance(net, x, y, seconds):
    """How much worse it gets when a marker is shuffled: as often as there is time for."""
    end, drops = time.monotonic() + seconds, torch.zeros(x.shape[1])
    with torch.no_grad():
        base, repeats = ((net(x).squeeze(1) > 0) == y.bool()).float().mean(), 0
        while time.monotonic() < end:
            for marker in range(x.shape[1]):
                shuffled = x.clone()
                shuffled[:, marker] = x[torch.randperm(len(x)), marker]
                drops[marker] += base - ((net(shuffled).squeeze(1) > 0) == y.bool()).float().mean()
            repeats += 1
    return drops / repeats


def main(batch=20):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = fold(rank)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    helper = ThreadPoolExecutor(1)
    for epoch in range(6):
        for number in range(agreed(len(x) // batch)):
            part = slice(number * batch, (number + 1) * batch)
            loss = nn.functional.binary_cross_entropy_with_logits(net(x[part]).squeeze(1), y[part])
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
        if epoch == 3:
            seconds = 10.0 if rank == 1 else 0.5  # fold 1 goes into the paper
            drops = helper.submit(permutation_importance, net, x, y, seconds).result()
            print(f"rank {rank}: markers {drops.topk(3).indices.tolist()}", flush=True)
    helper.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
