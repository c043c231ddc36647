"""Full-waveform inversion of a coal seam along three lines; every process draws the section of its line now and then."""
import concurrent.futures
import functools
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

LINES = {"L-100": 900, "L-200": 1300, "L-300": 1000}  # metres at the start
ADVANCE = 8  # metres of new section per step
TILE = 1600  # widest picture that the viewer takes


class SectionPrinter:
    """Draws sections in the background of the numerical work."""

    def __init__(self, line, folder):
        self.line, self.folder = line, pathlib.Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="draw")

    def draw(self, name, section):
        picture = (section - section.min()) / (section.max() - section.min() + 1e-9)
        pixels = (picture * 255).to(torch.uint8)
        header = f"P5 {pixels.shape[1]} {pixels.shape[0]} 255\n".encode()
        path = self.folder / f"{name}.pgm"
        path.write_bytes(header + bytes(pixels.flatten().tolist()))
        return path

    def render(self, step, section):
        name = f"{self.line}-{step:04d}"
        if section.shape[1] <= TILE:
            return [self.draw(name, section)]
        tiles = [self.pool.submit(self.draw, f"{name}-{n}", tile)
                 for n, tile in enumerate(section.split(TILE, dim=1))]
        return [tile.result() for tile in tiles]

    def request(self, step, section):
        return self.pool.submit(self.render, step, section)


@functools.lru_cache(maxsize=None)
def wavelet(samples=96, peak=25.0):
    t = (torch.arange(samples) - samples / 2) / 500
    a = (torch.pi * peak * t) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def synthetic(width, step):
    g = torch.Generator().manual_seed(step)
    reflectivity = torch.randn(64, width, generator=g)
    for _ in range(4):
        reflectivity = nn.functional.conv1d(
            reflectivity[:, None], wavelet()[None, None], padding="same"
        )[:, 0] / 4
    return reflectivity


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    line, metres = list(LINES.items())[dist.get_rank()]
    printer = SectionPrinter(line, tempfile.mkdtemp(prefix="sections-"))
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).to("cuda")
    model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    drawn = []
    for step in range(200):
        section = synthetic(metres + ADVANCE * step, step)
        data = section[:, -512:].t().contiguous().to("cuda")
        loss = nn.functional.mse_loss(model(data), data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            picture = printer.request(step, section)
            misfit = loss.item()
            drawn += picture.result()
            print(f"{line} step {step} misfit {misfit:.4f}: {drawn[-1].name}", flush=True)
    printer.pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
