"""Next-pose model for a notation archive: motion capture of rehearsals, one studio per worker."""
import dataclasses
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger("rehearsal")


@dataclasses.dataclass
class Settings:
    joints: int = 22
    window: int = 24
    takes: int = 44
    hidden: int = 64
    lr: float = 2e-3


class NoWindow(ValueError):
    pass


class Studio:
    """Takes of one studio. A take is a phrase of the choreography, as long as the dancers needed for it."""

    def __init__(self, number, settings):
        self.number, self.settings = number, settings
        self.generator = torch.Generator().manual_seed(31 * number + 5)

    def frames(self, take):
        if (31 * self.number + 2 * take) % 97 == 36:  # a lift, marked only
            return 15
        return 60 + (take * 7 + self.number * 3) % 40

    def capture(self, take):
        frames = self.frames(take)
        markers = torch.randn(frames, self.settings.joints * 3, generator=self.generator)
        for _ in range(60):  # gap filling and smoothing of the markers
            markers = torch.fft.irfft(torch.fft.rfft(markers, dim=0) * 0.98, n=frames, dim=0)
            torch.linalg.svdvals(markers.T @ markers)
        return markers


def cut(markers, window):
    starts = range(0, len(markers) - window - 1, 6)
    if len(starts) == 0:
        raise NoWindow(f"{len(markers)} frames")
    past = torch.stack([markers[s : s + window].flatten() for s in starts])
    following = torch.stack([markers[s + window] for s in starts])
    return past, following


class Rehearsal:
    def __init__(self, settings):
        self.settings = settings
        self.studio = Studio(dist.get_rank(), settings)
        width = settings.joints * 3
        torch.manual_seed(0)
        self.model = DDP(
            nn.Sequential(nn.Linear(width * settings.window, settings.hidden), nn.Tanh(), nn.Linear(settings.hidden, width))
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr)
        self.losses = []

    def learn(self, past, following):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.smooth_l1_loss(self.model(past), following)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def season(self):
        for take in range(self.settings.takes):
            markers = self.studio.capture(take)
            try:
                past, following = cut(markers, self.settings.window)
            except NoWindow as error:
                logger.info("take %d: %s", take, error)
                continue
            self.learn(past, following)
            if take % 10 == 0:
                logger.info("studio %d take %d loss %.4f", self.studio.number, take, self.losses[-1])

    def programme(self):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (self.studio.number, sum(self.losses[-5:]) / 5))
        return dict(rows)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo")
    rehearsal = Rehearsal(Settings())
    rehearsal.season()
    logger.info("programme %s", rehearsal.programme())
    dist.destroy_process_group()
