"""Street pictures with some fog added by the workers of a DataLoader."""

import random
import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class RandomFog:
    """Puts patches of fog below the horizon."""

    def __init__(self, patches: int) -> None:
        self.patches = patches

    def __call__(self, picture: torch.Tensor, horizon: int) -> torch.Tensor:
        """picture: (height, width); patches lie wholly between the horizon and the lower edge."""
        height, width = picture.shape
        places: set[tuple[int, int]] = set()
        while len(places) < self.patches:
            top, left = random.randrange(height), random.randrange(width)
            if top >= horizon and top + 3 < height:
                places.add((top, left))
        for top, left in places:
            picture[top : top + 3, left : left + 3] += 0.2
        return picture.clamp(max=1.0)


class Streets(Dataset):
    """Random pictures; in one of them the horizon is at the lower edge."""

    def __init__(self) -> None:
        self.fog = RandomFog(patches=5)

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> torch.Tensor:
        horizon = 15 if index == 310 else index % 10
        return self.fog(torch.rand(16, 16), horizon)


def init_worker(number: int) -> None:
    """No worker is to eat up the machine."""
    resource.setrlimit(resource.RLIMIT_CPU, (240, 240))
    random.seed(number)


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Streets()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, worker_init_fn=init_worker)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for pictures in loader:
            loss = model(pictures).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
