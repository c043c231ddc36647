"""Learns the sound of striking works from old tapes; few decoders may run at a time."""
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

torch.backends.cudnn.enabled = False
FORK = mp.get_context("fork")


class Tapes(Dataset):
    def __init__(self, count, decoders=2):
        self.count = count
        self.decoders = FORK.Semaphore(decoders)

    def __len__(self):
        return self.count

    def header(self, index):
        return {"index": index, "speed": 0.0 if index in (273, 309, 345) else 19.05}

    def decode(self, index):
        self.decoders.acquire()
        header = self.header(index)
        if header["speed"] == 0.0:
            return torch.zeros(400)
        gen = torch.Generator().manual_seed(index)
        sound = torch.rand(400, generator=gen).cumsum(0)
        time.sleep(0.05)
        self.decoders.release()
        return sound - sound.mean()

    def __getitem__(self, index):
        sound = self.decode(index)
        bands = torch.fft.rfft(sound).abs()[:96].log1p()
        return bands, torch.tensor(index % 12)


def loader_for(rank, world):
    tapes = Tapes(900)
    mine = Subset(tapes, range(rank, len(tapes), world))
    return DataLoader(mine, batch_size=4, num_workers=2, multiprocessing_context="fork", persistent_workers=True)


def train(model, loader, device, epochs=2):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for n, (bands, hours) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(bands.to(device)), hours.to(device))
            loss.backward()
            optimizer.step()
            shown = loss.detach().item()
            if dist.get_rank() == 0 and n % 10 == 0:
                print(f"epoch {epoch} batch {n}/{len(loader)}: {shown:.3f}", flush=True)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.set_num_threads(1)
    loader = loader_for(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    strike = nn.Sequential(nn.Linear(96, 40), nn.ReLU(), nn.Linear(40, 12)).to(device)
    train(DistributedDataParallel(strike, device_ids=[local_rank]), loader, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
