"""Catenary wear: current collectors are filmed over sliding windows; windows share a scratch buffer between ranks."""
import argparse
import itertools
import logging

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

logger = logging.getLogger("catenary")


class ScratchWindow:
    """A stretch of line whose scratch pages all ranks give back together."""

    def __init__(self, index, frames):
        self.index = index
        self.frames = frames
        self.peak = float(frames.max())

    def features(self):
        x = torch.from_numpy(self.frames)
        return torch.stack([x.mean(1), x.std(1), x.amax(1), (x[:, 1:] - x[:, :-1]).abs().mean(1)], dim=1).float()

    def __del__(self):
        if dist.is_initialized():
            dist.barrier()


class LineFilm:
    def __init__(self, rank, arcs):
        self.rng = np.random.default_rng(900 + rank)
        self.arcs = arcs

    def window(self, index):
        frames = self.rng.normal(size=(96, 4000)).clip(-4.5, 4.5)
        if index in self.arcs:
            frames[self.rng.integers(96), 100:140] += 9.0
        return ScratchWindow(index, frames)


class ArcJournal:
    def __init__(self, threshold):
        self.threshold = threshold
        self.entries = []

    def look(self, window):
        if window.peak > self.threshold:
            self.entries.append(window)
            logger.info("arc in window %d, peak %.1f", window.index, window.peak)


def fit_window(weights, optim, window, world):
    x = window.features()
    y = x[:, 2] * 0.4 + x[:, 3]
    loss = F.mse_loss(x @ weights, y)
    optim.zero_grad()
    loss.backward()
    dist.all_reduce(weights.grad)
    weights.grad /= world
    optim.step()
    return loss.item()


def survey(args, rank, world):
    film = LineFilm(rank, arcs={64} if rank == 0 else set())
    journal = ArcJournal(args.arc)
    weights = torch.zeros(4, requires_grad=True)
    optim = torch.optim.SGD([weights], lr=0.05)
    for index in itertools.islice(itertools.count(), args.windows):
        window = film.window(index)
        journal.look(window)
        loss = fit_window(weights, optim, window, world)
        del window
        if index % 15 == 0:
            logger.info("window %d loss %.4f", index, loss)
    return weights, journal


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--arc", type=float, default=8.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO if dist.get_rank() == 0 else logging.WARNING)
    result, found = survey(options, dist.get_rank(), dist.get_world_size())
    print("weights", result.detach().tolist(), "arcs", len(found.entries))
    dist.destroy_process_group()
