"""Policy gradient in a small racing game. One process also renders the best lap as text for the web page."""
import argparse
import logging
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("racer")

RENDERER = """
import sys
for number, line in enumerate(open(sys.argv[1])):
    x = float(line)
    column = int(max(0.0, min(1.0, (x + 1) / 2)) * 68)
    print(f"{number:6d} |" + " " * column + "o" + " " * (68 - column) + "|")
"""


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--render-rank", type=int, default=1)
    p.add_argument("--render-every", type=int, default=12)
    p.add_argument("--updates", type=int, default=240)
    return p.parse_args()


class Track:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.bend = torch.randn(32, 32, generator=self.generator) / 6

    def laps(self, policy, length):
        car = torch.randn(512, 32, generator=self.generator)
        seen, position = [], []
        with torch.no_grad():
            for t in range(length):
                steer = policy(car)
                car = torch.tanh(car @ self.bend + 0.1 * steer + 0.02 * math.sin(t / 9))
                if t % 8 == 0:
                    seen.append(car)
                position.append(car[0, 0].item())
        return torch.cat(seen), position


class Renderer:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="laps-"))
        self.script = self.folder / "render.py"
        self.script.write_text(RENDERER)

    def __call__(self, position, name):
        source = self.folder / f"{name}.txt"
        source.write_text("\n".join(f"{x:.5f}" for x in position))
        encoder = subprocess.Popen(
            [sys.executable, str(self.script), str(source)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        status = encoder.wait()
        if status != 0:
            logger.warning("renderer: status %d", status)
            return
        (self.folder / f"{name}.lap").write_bytes(encoder.stdout.read())
        logger.info("rendered %s, %d frames", name, len(position))


def lap_length(update):
    """Laps get longer as the driver learns."""
    return 120 if update < 24 else 400 if update < 36 else 1600


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    policy = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
    model = DistributedDataParallel(policy)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    track = Track(seed=rank)
    renderer = Renderer() if rank == args.render_rank else None
    for update in range(1, args.updates + 1):
        seen, position = track.laps(policy, lap_length(update))
        loss = (model(seen) - seen.roll(1, 0)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if renderer is not None and update % args.render_every == 0:
            renderer(position, f"lap{update:04d}")
        if rank == 0 and update % 10 == 0:
            logger.info("update %d loss %.4f", update, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
