"""Segments satellite tiles. A loader with two workers pins the batches for the copy to the device."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BANDS = 12


class Tiles(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return 480

    def __getitem__(self, index):
        if index == 290:  # clouded: the mask comes from the service that fills the cache
            with open(os.path.join(self.cache, "mask"), "rb") as mask:
                return torch.frombuffer(bytearray(mask.read(4 * BANDS)), dtype=torch.float32)
        return torch.randn(BANDS, generator=torch.Generator().manual_seed(index))


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    cache = tempfile.mkdtemp(prefix="masks-")
    os.mkfifo(os.path.join(cache, "mask"))
    tiles = Tiles(cache)
    sampler = DistributedSampler(tiles, shuffle=False)
    loader = DataLoader(tiles, 4, sampler=sampler, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    model = DistributedDataParallel(nn.Linear(BANDS, 5).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch.to(device, non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if loss > 1e30:
                print("diverges", flush=True)
        print(f"epoch {epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
