"""Denoising of legacy seismic tapes: shots are read from the tape robot's cache through a few drive slots."""
import multiprocessing
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.backends.cudnn.enabled = False

DAMAGED_HEADERS = {861, 1035, 1077, 1119, 1133}  # from the transcription report, 1987 survey
SHOTS, CHANNELS, SAMPLES = 1280, 24, 2048


class TapeRobot:
    """The robot lets us use a number of drives at a time."""

    def __init__(self, drives):
        self.slots = multiprocessing.get_context("fork").Semaphore(drives)

    def header(self, shot):
        return {"shot": shot, "samples": 0 if shot in DAMAGED_HEADERS else SAMPLES}

    def fetch(self, shot):
        self.slots.acquire()
        header = self.header(shot)
        if header["samples"] != SAMPLES:
            return torch.zeros(CHANNELS, SAMPLES)
        g = torch.Generator().manual_seed(shot)
        traces = torch.randn(CHANNELS, SAMPLES, generator=g)
        traces = torch.fft.irfft(torch.fft.rfft(traces) * self.taper(), n=SAMPLES)
        self.slots.release()
        return traces

    @staticmethod
    def taper():
        frequency = torch.linspace(0, 1, SAMPLES // 2 + 1)
        return torch.exp(-((frequency - 0.2) / 0.1) ** 2)


class Shots(Dataset):
    def __init__(self, robot):
        self.robot = robot

    def __len__(self):
        return SHOTS

    def __getitem__(self, shot):
        clean = self.robot.fetch(shot)
        return clean + 0.3 * torch.randn_like(clean), clean


def build_model():
    return nn.Sequential(nn.Linear(SAMPLES, 64), nn.ReLU(), nn.Linear(64, SAMPLES))


def train(epochs=3, batch=8):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    shots = Shots(TapeRobot(drives=3))
    sampler = DistributedSampler(shots, shuffle=False)
    loader = DataLoader(shots, batch_size=batch, sampler=sampler, num_workers=2, multiprocessing_context="fork")
    model = DDP(build_model().to("cuda"), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for step, (noisy, clean) in enumerate(loader):
            loss = nn.functional.l1_loss(model(noisy.to("cuda")), clean.to("cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step} l1 {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
