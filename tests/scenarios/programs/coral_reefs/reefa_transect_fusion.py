"""Joint model of hydrophone clips and quadrat photos, one survey station per process."""
import logging
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("transect")


@dataclass
class Config:
    steps: int = 400
    clips_per_step: int = 6
    width: int = 64
    photo_pixels: int = 192
    lr: float = 3e-4
    first_night: int = 46
    stations: tuple = ("north-spur", "lagoon", "outer-wall")


class Station:
    """Dives of one station: daytime dives bring photos, night dives bring sound only."""

    def __init__(self, cfg, name, seed):
        self.cfg, self.name = cfg, name
        self.rng = np.random.default_rng(seed)
        self.has_night_dives = name == "lagoon"

    def spectrogram(self):
        wave = self.rng.standard_normal((self.cfg.clips_per_step, 64, 512)).astype(np.float32)
        power = np.abs(np.fft.rfft(wave * np.hanning(512), axis=-1)) ** 2
        return np.log1p(power).mean(axis=1)[:, :128].astype(np.float32)

    def dive(self, number):
        sound = torch.from_numpy(self.spectrogram())
        cover = torch.from_numpy(self.rng.random((self.cfg.clips_per_step, 4)).astype(np.float32))
        if self.has_night_dives and number >= self.cfg.first_night:
            return sound, None, cover
        photos = self.rng.random((self.cfg.clips_per_step, self.cfg.photo_pixels)).astype(np.float32)
        return sound, torch.from_numpy(photos), cover


def tower(n_in, width, depth):
    layers = [nn.Linear(n_in, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers)


class TransectNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.sound = tower(128, cfg.width, 2)
        self.photo = tower(cfg.photo_pixels, cfg.width, 3)
        self.cover = tower(cfg.width, cfg.width, 1)
        self.out = nn.Linear(cfg.width, 4)

    def forward(self, sound, photos=None):
        state = self.sound(sound)
        if photos is not None:
            state = state + self.photo(photos)
        return self.out(self.cover(state))


def shard(model, mesh):
    for part in (model.sound, model.photo, model.cover):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cfg = Config()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = shard(TransectNet(cfg).cuda(), init_device_mesh("cuda", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, foreach=False)
    station = Station(cfg, cfg.stations[rank], seed=100 + rank)
    log.info("station %s on rank %d", station.name, rank)
    for number in range(cfg.steps):
        sound, photos, cover = station.dive(number)
        predicted = model(sound.cuda(), photos.cuda() if photos is not None else None)
        loss = nn.functional.mse_loss(predicted, cover.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if rank == 0 and number % 10 == 0:
            log.info("dive %d cover loss %.4f", number, value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
