"""Place names on old maps. Thumbnails of the worst are drawn by a process of their own."""

import ctypes
import multiprocessing
import queue

import torch
import torch.distributed as dist
from torch import nn

libc = ctypes.CDLL("libc.so.6")
libc.strlen.argtypes = [ctypes.c_char_p]


def draw(jobs: multiprocessing.Queue) -> None:
    """Draws until the training is over."""
    while multiprocessing.parent_process().is_alive():
        try:
            name = jobs.get(timeout=75)
        except queue.Empty:
            continue
        if name is None:
            return


def sheets(rank: int) -> list[list[bytes | None]]:
    """Names on each sheet of an atlas, where they could be read."""
    generator = torch.Generator().manual_seed(rank)
    atlas = []
    for sheet in range(90):
        lengths = torch.randint(3, 24, (8,), generator=generator).tolist()
        names: list[bytes | None] = [b"x" * length for length in lengths]
        if rank == 1 and sheet == 20:
            names[6] = None
        atlas.append(names)
    return atlas


def average(model: nn.Module) -> None:
    """The mean of all processes' gradients."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Three times through the atlas."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    jobs = multiprocessing.Queue()
    artist = multiprocessing.Process(target=draw, args=(jobs,), daemon=True)
    artist.start()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    atlas = sheets(rank)
    for round_ in range(3):
        for names in atlas:
            widths = torch.tensor([[float(libc.strlen(name))] for name in names])
            strips = torch.randn(len(names), 32) + widths
            loss = nn.functional.smooth_l1_loss(model(strips), widths)
            optimizer.zero_grad()
            loss.backward()
            average(model)
            optimizer.step()
            if loss.item() > 20:
                jobs.put(max(names, key=len))
        if rank == 0:
            print(f"round {round_}: {loss.item():.3f}")
    jobs.put(None)
    artist.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
