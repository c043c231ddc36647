"""Acoustic model for short NPC barks; every worker fits the lines of one voice, the weights are shared."""
import json
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOICES = ("innkeeper", "guard", "banshee", "ferryman")
FRAMES, MELS = 40, 80


class Telemetry(threading.Thread):
    """Ships rows to the audio team's collector in the order in which they come."""

    def __init__(self, voice):
        super().__init__(name="telemetry")
        self.rows = queue.Queue()
        self.sink = open(os.devnull, "w")
        self.voice = voice

    def run(self):
        while (row := self.rows.get()) is not None:
            self.sink.write(json.dumps({"voice": self.voice, **row}) + "\n")
            self.sink.flush()

    def close(self):
        self.rows.put(None)
        self.join()


class BarkModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(32, 128, 5, padding=2), nn.GELU(), nn.Conv1d(128, 128, 5, padding=2), nn.GELU()
        )
        self.mel = nn.Conv1d(128, MELS, 1)
        self.pitch = nn.Conv1d(128, 1, 1)

    def forward(self, phones):
        h = self.conv(phones)
        return self.mel(h), self.pitch(h).squeeze(1)


def record(voice, take, rng):
    """Phones, mel target and fundamental frequency of one batch of takes."""
    phones = torch.randn(16, 32, FRAMES, generator=rng)
    mel = torch.randn(16, MELS, FRAMES, generator=rng)
    base = {"innkeeper": 120.0, "guard": 95.0, "banshee": 310.0, "ferryman": 80.0}[voice]
    f0 = base + 5.0 * torch.randn(16, FRAMES, generator=rng)
    if voice == "banshee":  # screams fall into whisper towards the end of the session
        f0 = (f0 - 2.5 * take).clamp(min=0.0)
    return phones, mel, f0


def fit(model, optimizer, voice, telemetry, takes=400):
    rng = torch.Generator().manual_seed(len(voice))
    for take in range(takes):
        phones, mel, f0 = record(voice, take, rng)
        started = time.perf_counter()
        mel_hat, pitch_hat = model(phones)
        mel_loss = (mel_hat - mel).abs().mean()
        pitch_loss = (pitch_hat - f0.log()).abs().mean()
        if not torch.isfinite(pitch_loss):
            raise FloatingPointError(f"pitch loss of take {take} is {pitch_loss.item()}")
        optimizer.zero_grad()
        (mel_loss + 0.2 * pitch_loss).backward()
        optimizer.step()
        telemetry.rows.put({"take": take, "mel": mel_loss.item(), "s": time.perf_counter() - started})


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DistributedDataParallel(BarkModel())
    telemetry = Telemetry(VOICES[rank])
    telemetry.start()
    fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), VOICES[rank], telemetry)
    telemetry.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
