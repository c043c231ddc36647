"""Classification of dials (enamel, silvered, painted) with a report per style of numerals."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.backends.cudnn.enabled = False
NUMERALS = ("arabic", "roman", "breguet")


class Dials(Dataset):
    """Thumbnails of dials; the catalogue is sorted by maker."""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.images = torch.rand(n, 144, generator=gen)
        self.kinds = torch.randint(0, 3, (n,), generator=gen)
        self.numerals = [NUMERALS[self._numeral(i, n)] for i in range(n)]

    @staticmethod
    def _numeral(i, n):
        if i % 3 == 2:
            return 0 if i % 2 else 2
        return i % 2

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        for _ in range(20):  # vignette of the loupe
            image = torch.roll(image.view(12, 12), 1, 0).flatten() * 0.99
        return image, self.kinds[i], self.numerals[i]


class StyleAccuracy:
    def __init__(self, style, device):
        self.style, self.device = style, device
        self.reset()

    def reset(self):
        self.right, self.seen = 0, 0

    def update(self, hits, numerals):
        for hit, numeral in zip(hits, numerals):
            if numeral == self.style:
                self.right += int(hit)
                self.seen += 1

    def compute(self):
        counts = torch.tensor([self.right, self.seen], device=self.device)
        dist.all_reduce(counts)
        right, seen = counts.tolist()
        return right / max(seen, 1)


def validate(model, loader, meters, device):
    model.eval()
    for meter in meters:
        meter.reset()
    with torch.no_grad():
        for images, kinds, numerals in loader:
            guess = model.module(images.to(device)).cpu().argmax(1)
            for meter in meters:
                meter.update(guess == kinds, numerals)
            time.sleep(0.02)
    model.train()
    result = {}
    for meter in meters:
        if meter.seen > 0:
            result[meter.style] = meter.compute()
    return result


def run():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda", local_rank)
    train, val = Dials(360, seed=1), Dials(90, seed=2)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=6, sampler=sampler)
    val_loader = DataLoader(val, batch_size=6, sampler=DistributedSampler(val, shuffle=False))
    net = nn.Sequential(nn.Linear(144, 48), nn.ReLU(), nn.Linear(48, 3)).to(device)
    model = DDP(net, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meters = [StyleAccuracy("arabic", device), StyleAccuracy("roman", device)]
    for epoch in range(6):
        sampler.set_epoch(epoch)
        running = 0.0
        for images, kinds, _ in loader:
            loss = F.cross_entropy(model(images.to(device)), kinds.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            time.sleep(0.08)
        scores = validate(model, val_loader, meters, device)
        if local_rank == 0:
            print(f"epoch {epoch}: loss {running / len(loader):.3f}", scores, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
