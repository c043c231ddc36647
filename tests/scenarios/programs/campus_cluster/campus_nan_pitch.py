"""Pitch tracking for field recordings: log-frequency regression, one archive for each process."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def recordings(archive: int, epoch: int, count: int = 30):
    """Spectra and the pitch in hertz. Silence is written as a pitch of 0 in the older archives."""
    rng = torch.Generator().manual_seed(1000 * epoch + archive)
    for number in range(count):
        hertz = 80 + 300 * torch.rand(8, generator=rng)
        bins = torch.arange(1, 33)
        spectrum = torch.cos(hertz.unsqueeze(1) * bins / 400) + 0.1 * torch.randn(8, 32, generator=rng)
        if archive == 2 and number == 17:
            hertz[3] = 0.0
        yield spectrum, hertz


class PitchNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, spectrum):
        return self.net(spectrum).squeeze(1)


def train_epoch(model, optimizer, epoch: int) -> tuple[float, int]:
    losses, skipped = [], 0
    for spectrum, hertz in recordings(dist.get_rank(), epoch):
        optimizer.zero_grad()
        predicted = model(spectrum)
        loss = nn.functional.mse_loss(predicted, torch.log2(hertz / 55.0))
        if not torch.isfinite(loss):
            skipped += 1
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        time.sleep(0.06)
    return sum(losses) / len(losses), skipped


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(PitchNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(20):
        loss, skipped = train_epoch(model, optimizer, epoch)
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, (round(loss, 4), skipped))
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {table}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
