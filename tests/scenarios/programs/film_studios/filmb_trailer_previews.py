"""Learns a grade for trailers and encodes a small preview of its work every ten shots."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS = 96, 3200

ENCODER = """
import sys, zlib
width = int(sys.argv[1])
picture = sys.stdin.buffer.read()
for n in range(len(picture) // width):
    row = picture[n * width:(n + 1) * width]
    hot = sum(v > 235 for v in row)
    if hot:
        sys.stderr.write(f"[preview] row {n:06d}: {hot} samples above legal range, clamped to 235\\n")
zlib.compress(picture, 1)
"""


class Grade(nn.Module):
    def __init__(self):
        super().__init__()
        self.curve = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, rgb):
        return torch.sigmoid(self.curve(rgb))


class PreviewWriter:
    def __init__(self, width=WIDTH):
        self.command = [sys.executable, "-c", ENCODER, str(width)]
        self.written = 0

    def write(self, picture):
        encoder = subprocess.Popen(self.command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        encoder.stdin.write(picture)
        encoder.stdin.close()
        if encoder.wait() != 0:
            raise RuntimeError(encoder.stderr.read().decode())
        encoder.stderr.close()
        self.written += 1


def shot_peak(trailer, shot):
    """Peak code value of the master: the HDR inserts of the third trailer go to full range."""
    return 255 if trailer == 2 and shot >= 36 else 220


def picture_of(trailer, shot):
    g = torch.Generator().manual_seed(1000 * trailer + shot)
    return torch.randint(16, shot_peak(trailer, shot) + 1, (ROWS, WIDTH), generator=g, dtype=torch.uint8)


def average(parameters):
    world = dist.get_world_size()
    pending = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
    for work, p in zip(pending, parameters):
        work.wait()
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(9)
    trailer = dist.get_rank()
    grade, previews = Grade(), PreviewWriter()
    parameters = list(grade.parameters())
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    for shot in range(120):
        picture = picture_of(trailer, shot)
        rgb = picture[:64].float().div(255).reshape(-1, 3)
        loss = (grade(rgb) - rgb.pow(0.9)).abs().mean()
        optimiser.zero_grad()
        loss.backward()
        average(parameters)
        optimiser.step()
        time.sleep(0.03)
        if shot % 10 == 9:
            previews.write(picture.numpy().tobytes())
            if trailer == 0:
                print(f"shot {shot}: loss {loss.item():.4f}, {previews.written} previews", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
