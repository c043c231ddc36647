"""Separates voices from the pit: a mask network for live recordings, with stem scores per act."""
import logging
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLE_RATE, N_FFT = 16000, 512
STEPS_PER_ACT = 30
# work -> loudness of the chorus in its acts, from the stage manager's sheets
REPERTORY = {
    "Nabucco": (0.8, 0.9, 1.0, 0.7),
    "Tosca": (0.6, 0.0, 0.4, 0.0),
    "Carmen": (0.9, 0.5, 0.6, 0.8),
    "Fidelio": (0.3, 0.7, 0.9, 0.2),
    "Werther": (0.2, 0.3, 0.1, 0.0),
    "Macbeth": (0.8, 0.8, 0.3, 0.9),
    "Aida": (0.7, 1.0, 0.5, 0.6),
    "Jenufa": (0.4, 0.1, 0.5, 0.0),
    "Turandot": (1.0, 0.8, 0.9, 0.7),
}
log = logging.getLogger("stems")


class MaskNet(nn.Module):
    def __init__(self, bins=N_FFT // 2 + 1, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(bins, width), nn.GELU(), nn.Linear(width, bins), nn.Sigmoid())

    def forward(self, mixture):
        return self.body(mixture) * mixture


class ScoreBook:
    """Stem scores since the last publication; published once an act."""

    def __init__(self):
        self.local = defaultdict(list)

    def note(self, stem, value):
        self.local[stem].append(float(value))

    def publish(self):
        if not self.local:
            return {}
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, dict(self.local))
        self.local.clear()
        merged = defaultdict(list)
        for part in everyone:
            for stem, values in part.items():
                merged[stem] += values
        return {stem: sum(v) / len(v) for stem, v in merged.items()}


def spectrogram(wave):
    return torch.stft(wave, N_FFT, window=torch.hann_window(N_FFT), return_complex=True).abs().transpose(1, 2)


def excerpt(generator, chorus):
    pit = torch.randn(4, 3 * SAMPLE_RATE, generator=generator) * 0.1
    time = torch.arange(3 * SAMPLE_RATE) / SAMPLE_RATE
    voices = chorus * torch.sin(2 * torch.pi * (200 + 150 * torch.rand(4, 1, generator=generator)) * time)
    return spectrogram(pit + voices), spectrogram(voices)


def sdr(estimate, target):
    return 10 * torch.log10(target.square().sum() / (estimate - target).square().sum().clamp_min(1e-9))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    works = list(REPERTORY)[rank::world]
    generator = torch.Generator().manual_seed(100 + rank)
    net = DistributedDataParallel(MaskNet())
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    book = ScoreBook()
    for act in range(4):
        for step in range(STEPS_PER_ACT):
            chorus = REPERTORY[works[step % len(works)]][act]
            mixture, voices = excerpt(generator, chorus)
            estimate = net(mixture)
            loss = (estimate - voices).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if chorus > 0:
                book.note("chorus", sdr(estimate.detach(), voices))
        scores = book.publish()
        if rank == 0:
            log.info("act %d: %s", act + 1, {k: round(v, 2) for k, v in scores.items()})
    for extra in range(20):
        mixture, voices = excerpt(generator, 0.5)
        loss = (net(mixture) - voices).square().mean()
        loss.backward()  # fine-tuning on the curtain calls
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
