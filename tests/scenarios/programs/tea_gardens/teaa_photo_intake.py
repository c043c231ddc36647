"""Leaf photos from the plucking rounds: thumbnails are made by a small pool, then classified."""
import multiprocessing as mp
import resource
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

ROUND = 12  # steps between two intakes
SIDE = 16


def worker_limits():
    """A worker may use little; the machine is shared with the office."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))


def thumbnail(photo):
    width, height, seed = photo
    cells = [0] * (SIDE * SIDE)
    value = seed
    for pixel in range(width * height):
        value = (1103515245 * value + 12345) & 0x7FFFFFFF
        cells[pixel % (SIDE * SIDE)] += value & 255
    return [c / (255.0 * max(1, width * height // (SIDE * SIDE))) for c in cells]


def photos_of_round(number, section):
    """(width, height, seed) of each photo that came in from a section."""
    shots = [(96, 64, 1000 * section + 10 * number + k) for k in range(6)]
    if section == 1 and number == 3:
        shots.append((16384, 8192, 77))  # the hillside, stitched
    return shots


def gradients_mean(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def main():
    torch.set_num_threads(1)
    pool = mp.get_context("fork").Pool(2, initializer=worker_limits)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(12):
        thumbs = torch.tensor(pool.map(thumbnail, photos_of_round(number, rank), chunksize=1))
        for step in range(ROUND):
            noisy = thumbs.repeat(40, 1) + 0.1 * torch.randn(len(thumbs) * 40, SIDE * SIDE)
            label = (noisy[:, :3] * 100).argmax(1)
            loss = F.cross_entropy(model(noisy), label)
            optimizer.zero_grad()
            loss.backward()
            gradients_mean(model, world)
            optimizer.step()
            time.sleep(0.05)  # leaves the office some of the machine
        if rank == 0:
            print(f"round {number}: {len(thumbs)} photos, loss {loss.item():.3f}", flush=True)
    pool.close()
    pool.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
