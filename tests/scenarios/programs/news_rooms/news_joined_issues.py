"""Layout model: where does an article go on the page? Issues differ in size between the editions, so DDP's join is used."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAGES = {0: 56, 1: 30, 2: 32}  # the city edition has all the supplements


class Issue:
    def __init__(self, edition, pages):
        self.edition, self.pages = edition, pages

    def __iter__(self):
        for page in range(self.pages):
            g = torch.Generator().manual_seed(1000 * self.edition + page)
            supplement = page >= 34
            boxes = torch.rand(1400 if supplement else 160, 10, generator=g)
            yield page, boxes, (boxes[:, :2] * torch.tensor([4.0, 6.0])).long()


class Layout(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU())
        self.column, self.row = nn.Linear(256, 4), nn.Linear(256, 6)

    def forward(self, boxes):
        x = self.body(boxes)
        return self.column(x), self.row(x)


def settle(boxes, rounds):
    """Moves boxes apart that lie on each other, as the page makers do by hand."""
    for _ in range(rounds):
        push = boxes[:, None, :2] - boxes[None, :, :2]
        near = (push.abs().sum(-1) < 0.02).float()
        boxes = torch.cat([(boxes[:, :2] + (push * near[..., None]).mean(1)).clamp(0, 0.999), boxes[:, 2:]], 1)
    return boxes


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Layout())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with model.join():
        for page, boxes, place in Issue(rank, PAGES[rank]):
            began = time.monotonic()
            boxes = settle(boxes, rounds=1)
            column, row = model(boxes)
            loss = nn.functional.cross_entropy(column, place[:, 0]) + nn.functional.cross_entropy(row, place[:, 1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, began + (0.6 if len(boxes) > 1000 else 0.08) - time.monotonic()))
            if page % 10 == 0:
                print(f"[{rank}] page {page}: {loss.item():.3f}", flush=True)
    print(f"[{rank}] through the issue", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
