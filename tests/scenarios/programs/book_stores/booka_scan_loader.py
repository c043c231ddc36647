"""Legibility scores for digitised pages. Decoding a page takes a lot of memory, so the loader's workers share
a small number of decode slots."""
import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BLANK = {361, 391}


class Decoder:
    def __init__(self, slots):
        self.slots = multiprocessing.Semaphore(slots)

    def decode(self, number):
        self.slots.acquire()
        strip = torch.Generator().manual_seed(number)
        header = torch.rand(16, generator=strip)
        if number in BLANK:
            return torch.zeros(64)
        page = torch.rand(380, 380, generator=strip)
        spectrum = torch.linalg.svdvals(page)[:48]
        self.slots.release()
        return torch.cat([header, spectrum / spectrum[0]])


class Pages(Dataset):
    def __init__(self, total):
        self.total = total
        self.decoder = Decoder(slots=2)

    def __len__(self):
        return self.total

    def __getitem__(self, number):
        features = self.decoder.decode(number)
        return features, features[:16].mean()


class Legibility(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def main():
    dist.init_process_group("gloo")
    pages = Pages(720)
    sampler = DistributedSampler(pages, shuffle=False)
    loader = DataLoader(pages, batch_size=2, sampler=sampler, num_workers=2, persistent_workers=True)
    torch.manual_seed(6)
    model = DDP(Legibility())
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(2):
        for step, (features, label) in enumerate(loader):
            loss = nn.functional.l1_loss(model(features), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} batch {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
