"""Dive-recording loader for the reef soundscape index: resamples in worker processes, trains a small regressor."""
import json
import os
import pathlib
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
CHANNEL_POOL = ThreadPoolExecutor(max_workers=1, thread_name_prefix="channels")


def level(channel):
    """Third-octave levels of one channel."""
    spectrum = np.abs(np.fft.rfft(channel.astype(np.float32))) ** 2
    return np.log1p(np.add.reduceat(spectrum, np.arange(0, 32) * (len(spectrum) // 32)))


class Dives(Dataset):
    def __init__(self, deck, manifest):
        self.rows = json.loads(manifest.read_text())[deck]
        # mean level of the first dives, to centre all others
        head = [level(self.read(row)[0]) for row in self.rows[:4]]
        self.offset = np.mean(list(CHANNEL_POOL.map(lambda h: h * 1.0, head)), axis=0)

    def read(self, row):
        rng = np.random.default_rng(row["seed"])
        return rng.standard_normal((row["channels"], row["samples"]), dtype=np.float32)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        channels = self.read(self.rows[i])
        if len(channels) > 1:  # array recorder: the channels are independent
            levels = np.mean([f.result() for f in [CHANNEL_POOL.submit(level, c) for c in channels]], axis=0)
        else:
            levels = level(channels[0])
        return torch.from_numpy((levels - self.offset).astype(np.float32)), torch.tensor([levels.max()], dtype=torch.float32)


def write_manifest(path, decks):
    plan = {}
    for d, deck in enumerate(decks):
        rows = [{"seed": 1000 * d + i, "channels": 1, "samples": 96_000} for i in range(1200)]
        if deck == "aft":
            for row in rows[760:790]:
                row["channels"] = 4
        plan[deck] = rows
    path.write_text(json.dumps(plan))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    deck = ("aft", "bow")[dist.get_rank()]
    manifest = pathlib.Path(tempfile.mkdtemp()) / "dives.json"
    write_manifest(manifest, ("aft", "bow"))
    loader = DataLoader(Dives(deck, manifest), batch_size=10, num_workers=2, drop_last=True, multiprocessing_context="fork")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 1)).cuda(), device_ids=[local])
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    ready = torch.cuda.Event(enable_timing=False)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.smooth_l1_loss(model(x.cuda()), y.cuda())
        optim.zero_grad()
        loss.backward()
        optim.step()
        ready.record()
        if step % 10 == 0:
            ready.synchronize()
            print(f"{deck} step {step}/{len(loader)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
