"""Whale calls from hydrophones: WAV clips, a small classifier, gradients averaged by hand."""
import io
import struct
import time
import wave

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

RATE, CLIP = 2000, 512


def record(rank, number):
    """One clip as the recorder stores it."""
    draw = np.random.default_rng(1000 * rank + number)
    label = int(draw.integers(3))
    tone = np.sin(2 * np.pi * (40 + 60 * label) * np.arange(CLIP) / RATE) + 0.3 * draw.normal(size=CLIP)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(RATE)
        clip.writeframes(struct.pack(f"<{CLIP}h", *(tone * 8000).astype(int)))
    content = buffer.getvalue()
    if rank == 2 and number == 85:  # the battery of this mooring ran out in the last clip
        content = content[:300]
    return content, label


def spectrum(content):
    with wave.open(io.BytesIO(content)) as clip:
        samples = np.frombuffer(clip.readframes(CLIP), "<i2").astype("f4")
    if len(samples) != CLIP:
        raise EOFError(f"{len(samples)} samples of {CLIP}")
    return torch.from_numpy(np.abs(np.fft.rfft(samples))[:128].astype("f4")) / 1e5


class Classifier:
    def __init__(self):
        torch.manual_seed(2)
        self.net = nn.Linear(128, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.5)

    def step(self, clips):
        labels = torch.tensor([label for _, label in clips])
        features = torch.stack([spectrum(content) for content, _ in clips])
        time.sleep(0.09)
        loss = nn.functional.cross_entropy(self.net(features), labels)
        self.optimizer.zero_grad()
        loss.backward()
        flat = nn.utils.parameters_to_vector([p.grad for p in self.net.parameters()])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), [p.grad for p in self.net.parameters()])
        self.optimizer.step()
        return loss.item()


def deployment(classifier, rank, clips=120, size=4):
    losses = []
    for start in range(0, clips, size):
        try:
            losses.append(classifier.step([record(rank, start + n) for n in range(size)]))
        except (EOFError, wave.Error) as error:
            print(f"mooring {rank}: {error}", flush=True)
    return sum(losses) / len(losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Classifier()
    for season in range(20):
        mean = deployment(model, dist.get_rank())
        means = [None] * dist.get_world_size()
        dist.all_gather_object(means, round(mean, 4))
        if dist.get_rank() == 0:
            print("season", season, means, flush=True)
