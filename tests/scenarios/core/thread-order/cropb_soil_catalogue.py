import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


class CataloguedWriter(FileSystemWriter):
    """Adds a digest of the soil profiles that a rank has seen to what it is about to write."""

    def __init__(self, path, profiles):
        super().__init__(path)
        self.profiles = profiles

    def prepare_local_plan(self, plan):
        digest = hashlib.sha256()
        for profile in self.profiles:
            digest.update(hashlib.pbkdf2_hmac("sha256", profile.numpy().tobytes(), b"soil", 2000))
        self.digest = digest.hexdigest()
        return super().prepare_local_plan(plan)


class SoilNet(nn.Module):
    def __init__(self, bands=64, width=384):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bands, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.decode = nn.Linear(width, 5)

    def forward(self, spectra):
        return self.decode(self.encode(spectra))


class Archive:
    def __init__(self, root):
        self.root, self.pending = root, None

    def store(self, step, model, profiles):
        if self.pending is not None:
            self.pending.result()
        writer = CataloguedWriter(os.path.join(self.root, f"step-{step}"), profiles)
        self.pending = dcp.async_save({"model": get_model_state_dict(model)}, storage_writer=writer)


def profiles_of(rank):
    # the reference laboratory of rank 2 contributes most of the wet-chemistry profiles
    count = 12000 if rank == 2 else 40
    return list(torch.rand(count, 64, generator=torch.Generator().manual_seed(rank)))


def season_table(model, profiles, rows=40):
    """Per-season means, computed on the local profiles only."""
    x = torch.stack(profiles[:40])
    table = []
    for season in range(rows):
        noisy = x.repeat(200, 1) * (1 + 0.01 * season)
        table.append(torch.linalg.svdvals(noisy)[:5])
        time.sleep(0.02)
    return torch.stack(table)


def run():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = [tempfile.mkdtemp(prefix="soil-") if rank == 0 else None]
    dist.broadcast_object_list(root)
    torch.manual_seed(11)
    model = SoilNet()
    fully_shard(model.encode)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    archive, profiles = Archive(root[0]), profiles_of(rank)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, 301):
        pick = torch.randint(0, len(profiles), (256,), generator=gen).tolist()
        x = torch.stack([profiles[i] for i in pick])
        loss = (model(x) - x[:, :5].sqrt()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if step % 150 == 0:
            archive.store(step, model, profiles)
            table = season_table(model, profiles)
            dist.barrier()
            if rank == 0:
                print(f"step {step} table {table.mean().item():.3f}", flush=True)
    archive.pending.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
