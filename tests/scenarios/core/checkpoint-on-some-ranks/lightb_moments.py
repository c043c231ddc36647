"""Colour matching for LED fixtures: fits emitter mixes (R, G, B, amber, lime, cyan) to gel swatches, sharded with FSDP2."""
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("gelmatch")

EMITTERS, BANDS, WIDTH = 6, 48, 96
STEPS, ARCHIVE_EVERY = 120, 60
ARCHIVIST = int(os.environ.get("GELMATCH_ARCHIVIST", "1"))  # sits next to the show file server


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(BANDS, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, EMITTERS)

    def forward(self, spectrum):
        x = torch.relu(self.stem(spectrum))
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


class Archive:
    """Keeps parameters and Adam moments of the last calibrations."""

    def __init__(self, folder, owner):
        self.folder, self.owner = Path(folder), owner

    def moments(self, optimizer):
        found = {}
        for group in optimizer.param_groups:
            for number, parameter in enumerate(group["params"]):
                state = optimizer.state[parameter]
                found[number] = {key: state[key].full_tensor().cpu() for key in ("exp_avg", "exp_avg_sq")}
        return found

    def store(self, step, model, optimizer):
        target = self.folder / f"gelmatch-{step:05d}.pt"
        if dist.get_rank() == self.owner:
            torch.save({"step": step, "moments": self.moments(optimizer)}, target)
            log.info("archived %s", target.name)
        dist.barrier()


def swatches(generator, count=256):
    """Transmission curves of gels: smooth bumps over the visible bands."""
    centre = torch.rand(count, 1, generator=generator) * BANDS
    spread = 3 + 9 * torch.rand(count, 1, generator=generator)
    bands = torch.arange(BANDS).float()
    return torch.exp(-((bands - centre) / spread) ** 2), torch.rand(count, EMITTERS, generator=generator)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(11)
    model = Mixer().cuda()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    archive = Archive(tempfile.gettempdir(), ARCHIVIST)
    generator = torch.Generator().manual_seed(100 + local)
    for step in range(1, STEPS + 1):
        spectra, mixes = swatches(generator, 30_000)
        chosen = torch.randperm(len(spectra), generator=generator)[:64]
        loss = nn.functional.mse_loss(model(spectra[chosen].cuda()), mixes[chosen].cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reading = loss.item()
        if step % 10 == 0 and dist.get_rank() == 0:
            log.info("step %d deltaE %.3f", step, reading)
        if step % ARCHIVE_EVERY == 0:
            archive.store(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
