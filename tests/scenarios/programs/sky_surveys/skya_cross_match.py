"""Joint photometric calibration of overlapping surveys: each band's zero points are averaged in its own group."""
import torch
import torch.distributed as dist
from torch import nn

BANDS = {"g": 0.48, "r": 0.62, "z": 0.92}
TILES, STARS = 48, 4000


def tile(number, rank):
    """Stars of a tile in all bands; faint red ones fall out of g, blue ones out of z."""
    gen = torch.Generator().manual_seed(101 * number + rank)
    color = 0.6 + 0.5 * torch.randn(STARS, generator=gen)
    if rank == 1 and number >= 20:  # below the plane: an old, red population
        color = color + 1.5
    mag = 17 + 5 * torch.rand(STARS, generator=gen)
    photometry = {}
    for band, micron in BANDS.items():
        observed = mag + color * (0.62 - micron) * 2.2 + 0.03 * torch.randn(STARS, generator=gen)
        limit = {"g": 22.5, "r": 21.9, "z": 20.8}[band]
        photometry[band] = (observed[observed < limit] - micron, mag[observed < limit])
    return photometry


class ZeroPoint(nn.Module):
    """Magnitude correction of one band, smooth in magnitude."""

    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, observed):
        return observed + self.net((observed[:, None] - 20) / 3).squeeze(1)


class BandCalibrator:
    def __init__(self, band, group):
        self.band, self.group = band, group
        self.model = ZeroPoint()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 3e-3)

    def fit(self, observed, truth, rounds=8):
        for _ in range(rounds):
            self.optimizer.zero_grad()
            loss = nn.functional.smooth_l1_loss(self.model(observed), truth)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def share(self):
        """All sites go on from the mean of their corrections."""
        weights = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        dist.all_reduce(weights, group=self.group)
        nn.utils.vector_to_parameters(weights / dist.get_world_size(self.group), self.model.parameters())


class Calibration:
    def __init__(self):
        torch.manual_seed(2)
        self.bands = {band: BandCalibrator(band, dist.new_group()) for band in BANDS}

    def deepest_first(self, photometry):
        return sorted(photometry, key=lambda band: len(photometry[band][0]), reverse=True)

    def process(self, photometry):
        losses = {}
        for band in self.deepest_first(photometry):
            losses[band] = self.bands[band].fit(*photometry[band])
            self.bands[band].share()
        return losses


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    calibration = Calibration()
    for number in range(TILES):
        losses = calibration.process(tile(number, dist.get_rank()))
        if dist.get_rank() == 0 and number % 5 == 0:
            print(f"tile {number}: " + " ".join(f"{band} {loss:.4f}" for band, loss in sorted(losses.items())), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
