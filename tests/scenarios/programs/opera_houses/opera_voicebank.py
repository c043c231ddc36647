"""Trains a shared vowel filter and, on each rank, its part of the voice table of a singing synthesizer."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

DIM, VOICES_PER_RANK = 64, 48
PHRASES = 512


class VoiceBank:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        g = torch.Generator().manual_seed(rank)
        self.filter = torch.zeros(DIM, DIM)
        self.table = torch.randn(VOICES_PER_RANK, DIM, generator=g)

    def sing(self, phrases):
        return phrases @ self.filter

    def step(self, phrases, target, lr=0.04):
        error = self.sing(phrases) - target
        gradient = phrases.T @ error / len(phrases)
        dist.all_reduce(gradient)
        self.filter -= lr * gradient / self.world
        # the own voices follow the mean spectrum they are used with
        self.table.lerp_(target[:VOICES_PER_RANK], 0.02)

    def save(self, path):
        parts = [torch.empty_like(self.table) for _ in range(self.world)]
        dist.all_gather(parts, self.table)
        if self.rank == 0:
            torch.save({"filter": self.filter, "voices": torch.cat(parts)}, path)


class Audition:
    """Held-out recordings: another recital every evening."""

    EVENINGS = {0: (1.0, 1.0, 1.0, 1.0), 1: (1.0, 0.9, 1.0, 1.1), 2: (1.1, 1.0, 7.5, 1.0)}

    def __init__(self, rank, vowel):
        self.levels = self.EVENINGS[rank]
        self.vowel = vowel
        self.generator = torch.Generator().manual_seed(50 + rank)
        self.best = float("inf")

    def judge(self, bank, evening):
        phrases = torch.randn(PHRASES, DIM, generator=self.generator) * self.levels[evening]
        loss = (bank.sing(phrases) - phrases @ self.vowel).square().mean().item()
        improved = loss < self.best
        self.best = min(loss, self.best)
        return loss, improved


def rehearse(bank, vowel, generator, steps):
    for _ in range(steps):
        # frames of a new take: cepstra of the room's response, whitened
        take = torch.randn(PHRASES, 4096, generator=generator)
        cepstra = torch.fft.rfft(take).abs().clamp_min(1e-6).log()[:, 1:DIM + 1]
        phrases = (cepstra - cepstra.mean(0)) / cepstra.std(0)
        bank.step(phrases, phrases @ vowel)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir(), f"voicebank-{os.environ.get('MASTER_PORT', '0')}")
    folder.mkdir(exist_ok=True)
    vowel = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(1)) / DIM**0.5
    bank = VoiceBank(rank, world)
    audition = Audition(rank, vowel)
    generator = torch.Generator().manual_seed(900 + rank)
    for evening in range(4):
        rehearse(bank, vowel, generator, steps=12)
        loss, improved = audition.judge(bank, evening)
        print(f"[{rank}] evening {evening}: {loss:.5f}", flush=True)
        if improved:
            bank.save(folder / "best.pt")
    rehearse(bank, vowel, generator, steps=12)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
