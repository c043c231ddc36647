"""Video pretraining: loader workers open the recordings and build their seek tables at the first batch."""
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class SeekTable:
    """Reads every packet header once."""

    def __init__(self, packets, seed):
        g = torch.Generator().manual_seed(seed)
        self.offsets = []
        position = 0
        for n in range(packets):
            position += int(torch.randint(200, 4000, (1,), generator=g))
            self.offsets.append(position)
            if n % 10 == 0:
                time.sleep(0.01)


class Recordings(IterableDataset):
    def __init__(self, rank, clips, packets):
        self.rank, self.clips, self.packets = rank, clips, packets

    def __iter__(self):
        worker = get_worker_info().id
        table = SeekTable(self.packets, seed=self.rank * 10 + worker)
        g = torch.Generator().manual_seed(len(table.offsets))
        for _ in range(self.clips):
            yield torch.rand(4, 3, 12, 12, generator=g)


class FramePredictor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = torch.nn.Conv2d(9, 16, 3, padding=1)
        self.decode = torch.nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, clip):
        return self.decode(torch.relu(self.encode(clip[:, :3].flatten(1, 2))))


def phase(name, model, optimizer, clips, packets):
    loader = DataLoader(Recordings(dist.get_rank(), clips, packets), batch_size=4, num_workers=1, multiprocessing_context="fork")
    for i, clip in enumerate(loader):
        loss = (model(clip) - clip[:, 3]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    print(f"{name} rank {dist.get_rank()}: {i + 1} batches, loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DDP(FramePredictor())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    phase("clips", model, optimizer, clips=240, packets=200)
    phase("full recordings", model, optimizer, clips=160, packets=11000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
