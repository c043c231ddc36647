"""Scene dataset: the first process converts recordings into an index, all train from it."""
import json
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Converter:
    def __init__(self, root, recordings):
        self.root, self.recordings = pathlib.Path(root), recordings

    def convert(self, number):
        g = torch.Generator().manual_seed(number)
        cloud = torch.randn(1200, 3, generator=g)
        nearest = torch.cdist(cloud, cloud).topk(4, largest=False).values[:, 1:]
        time.sleep(0.05)  # the recorder's disk
        return {"id": number, "density": nearest.mean().item(), "extent": cloud.amax(0).tolist()}

    def run(self):
        self.root.mkdir(exist_ok=True)
        with open(self.root / "index.jsonl", "w") as f:
            for number in range(self.recordings):
                f.write(json.dumps(self.convert(number)) + "\n")
                f.flush()
                if number % 50 == 0:
                    print(f"converted {number}/{self.recordings}", flush=True)


class Scenes(Dataset):
    def __init__(self, root):
        self.rows = [json.loads(line) for line in open(pathlib.Path(root) / "index.jsonl")]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor(row["extent"]), torch.tensor([row["density"]])


def train(root, epochs):
    data = Scenes(root)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.5f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for split, recordings in (("pilot", 12), ("full", 160)):
        if dist.get_rank() == 0:
            Converter(split, recordings).run()
        dist.barrier()
        train(split, epochs=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
