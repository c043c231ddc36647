"""Crack detection on ultrasonic billet scans. Scans are read by worker processes; long billets come as two parts that are joined."""
import json
import os
import pathlib
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONFIG = {"scans": 3600, "echoes": 96, "batch": 24, "workers": 2, "epochs": 4, "lr": 2e-3}


def write_index(folder, scans):
    """One entry per scan; `tail` names the file with the second part, where there is one."""
    index = []
    for number in range(scans):
        entry = {"id": number, "crack": number % 7 == 0}
        if number == 3001:
            tail = folder / f"{number}.tail"
            os.mkfifo(tail)  # the scanner's gateway delivers second parts through pipes
            entry["tail"] = str(tail)
        index.append(entry)
    (folder / "index.json").write_text(json.dumps(index))


class BilletScans(Dataset):
    def __init__(self, folder, echoes):
        self.index = json.loads((pathlib.Path(folder) / "index.json").read_text())
        self.echoes = echoes

    def __len__(self):
        return len(self.index)

    def read_tail(self, path):
        with open(path, "rb") as stream:
            return np.frombuffer(stream.read(), dtype="float32")

    def __getitem__(self, number):
        entry = self.index[number]
        rng = np.random.default_rng(entry["id"])
        trace = rng.normal(size=32768).astype("float32")
        if "tail" in entry:
            trace = np.concatenate([trace, self.read_tail(entry["tail"])])
        envelope = np.abs(np.fft.ifft(np.fft.fft(trace) * (np.arange(len(trace)) < len(trace) // 2)))
        features = envelope[:32768].reshape(self.echoes // 3 * 2, -1).max(1)
        features = np.resize(features, self.echoes).astype("float32")
        return torch.from_numpy(features), torch.tensor(float(entry["crack"]))


class Detector(nn.Sequential):
    def __init__(self, echoes):
        super().__init__(nn.Linear(echoes, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1))


def prepare(rank):
    box = [None]
    if rank == 0:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="billets"))
        write_index(folder, CONFIG["scans"])
        box[0] = str(folder)
    dist.broadcast_object_list(box, src=0)
    return box[0]


def run_epoch(epoch, loader, model, optimizer, rank):
    loader.sampler.set_epoch(epoch)
    for number, (echoes, cracks) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(echoes.cuda()).squeeze(1), cracks.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 5 == 4:
            value = loss.item()
            if rank == 0:
                print(f"epoch {epoch} batch {number + 1}: {value:.4f}", flush=True)


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    scans = BilletScans(prepare(rank), CONFIG["echoes"])
    sampler = DistributedSampler(scans, shuffle=False, drop_last=True)
    loader = DataLoader(scans, batch_size=CONFIG["batch"], sampler=sampler, num_workers=CONFIG["workers"], drop_last=True)
    model = DDP(Detector(CONFIG["echoes"]).cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=CONFIG["lr"])
    for epoch in range(CONFIG["epochs"]):
        run_epoch(epoch, loader, model, optimizer, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
