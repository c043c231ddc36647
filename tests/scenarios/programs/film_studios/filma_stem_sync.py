"""Dialogue separation for dubbing; loudness reports are gathered beside the training."""
import queue
import threading
import wave
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

RATE = 16000


class Separator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.mask = nn.Sequential(nn.Linear(65, width), nn.ReLU(), nn.Linear(width, 65), nn.Sigmoid())

    def forward(self, mixture):
        spec = torch.stft(mixture, 128, window=torch.hann_window(128), return_complex=True)
        return spec * self.mask(spec.abs().transpose(1, 2)).transpose(1, 2)


class LoudnessDesk(threading.Thread):
    """Takes stems from the training, keeps the peaks as WAV for the mixer, and shares the levels."""

    def __init__(self, rank, world):
        super().__init__(daemon=True, name="loudness")
        self.rank, self.world = rank, world
        self.todo = queue.Queue()
        self.folder = Path(mkdtemp(prefix="stems-"))

    def archive(self, stem, step):
        samples = (stem * 32767).astype(np.int16)
        with wave.open(str(self.folder / f"{step:04d}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            # block by block, with the true peak that the mixer's meters want
            peaks = []
            for block in np.array_split(samples, 1600):
                out.writeframes(block.tobytes())
                peaks.append(np.percentile(np.repeat(np.abs(block), 10000).astype(np.float64), 95))
        np.save(self.folder / f"{step:04d}-peaks.npy", np.array(peaks))

    def run(self):
        while True:
            step, stem = self.todo.get()
            level = float(np.sqrt((stem**2).mean()))
            if level > 0.5:
                self.archive(stem, step)
            levels = [torch.zeros(2) for _ in range(self.world)]
            dist.all_gather(levels, torch.tensor([float(step), level]))
            if self.rank == 0:
                print(f"step {step} levels {[round(v[1].item(), 3) for v in levels]}", flush=True)


def average_gradients(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def mixtures(rank, count, seconds=1.0):
    rng = np.random.default_rng(rank)
    t = np.arange(int(RATE * seconds)) / RATE
    for step in range(count):
        # the explosion of reel four is on the second language's track
        gain = 0.9 if (rank == 2 and step == 120) else 0.2
        voice = np.sign(np.sin(2 * np.pi * rng.uniform(80, 300) * t)) * gain
        yield step, (voice + rng.normal(0, 0.02, t.size)).clip(-1, 1).astype(np.float32), voice.astype(np.float32)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = Separator()
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    desk = LoudnessDesk(rank, world)
    desk.start()
    for step, mixture, voice in mixtures(rank, 300):
        if step % 120 == 0 and step:
            desk.todo.put((step, voice))
        # a bar of context from the neighbouring reels
        batch = torch.from_numpy(np.stack([np.roll(mixture, k * 997) for k in range(32)]))
        target = torch.stft(torch.from_numpy(np.stack([np.roll(voice, k * 997) for k in range(32)])), 128,
                            window=torch.hann_window(128), return_complex=True)
        loss = (model(batch) - target).abs().mean()
        optim.zero_grad()
        loss.backward()
        average_gradients(model, world)
        optim.step()
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
