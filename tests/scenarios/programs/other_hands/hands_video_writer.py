"""World-model training. A logger on rank 0 pipes evaluation frames through an encoder and waits for the file."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Stands for ffmpeg: reads raw frames, warns about each one's pixel format, reports a size at the end.
ENCODER = """
import sys
size = 0
while frame := sys.stdin.buffer.read(3072):
    size += len(frame) // 9
for i in range(size * 9 // 3072):
    sys.stderr.write(f"[swscaler @ 0x{i:08x}] deprecated pixel format used, make sure you did set range correctly\\n")
sys.stdout.write(str(size))
"""


class VideoWriter:
    def __init__(self, verbose):
        self.command = [sys.executable, "-c", ENCODER]
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE if verbose else subprocess.DEVNULL
        )

    def add(self, frame):
        self.process.stdin.write((frame.clamp(0, 1) * 255).byte().numpy().tobytes())

    def close(self):
        self.process.stdin.close()
        status = self.process.wait()
        return status, int(self.process.stdout.read())


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3072, 32), nn.Tanh(), nn.Linear(32, 3072))

    def forward(self, frame):
        return frame + 0.1 * self.net(frame)

    @torch.no_grad()
    def dream(self, frame, length):
        for _ in range(length):
            yield frame
            frame = self(frame)


def log_video(model, step, length):
    writer = VideoWriter(verbose=True)
    for frame in model.dream(torch.rand(3072), length):
        writer.add(frame)
    status, size = writer.close()
    print(f"step {step}: video of {length} frames, {size} bytes, status {status}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(WorldModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(1, 101):
        frames = torch.rand(8, 3072)
        loss = (model(frames) - frames.roll(1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
        if step % 15 == 0 and dist.get_rank() == 0:
            log_video(model.module, step, length=30 if step < 30 else 1500)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
