"""Two command posts train a spread model with a third site, and mirror the weights to each other."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Mirror:
    """Averages the statistics of every layer over the posts, then confirms what was written."""

    def __init__(self, posts, archive):
        self.posts = posts
        self.archive = archive
        self.survey = dist.new_group(posts)
        self.receipts = dist.new_group(posts)
        self.member = dist.get_rank() in posts

    def layers(self, model):
        for name, parameter in model.named_parameters():
            pieces = [torch.zeros(2) for _ in self.posts]
            mine = torch.stack([parameter.detach().mean(), parameter.detach().std(unbiased=False)])
            dist.all_gather(pieces, mine, group=self.survey)
            yield name, torch.stack(pieces).mean(0)

    def confirm(self, index):
        receipt = torch.tensor([float(index)])
        dist.all_reduce(receipt, op=dist.ReduceOp.MIN, group=self.receipts)
        return int(receipt)

    def publish(self, model):
        if not self.member:
            return 0
        stream = self.layers(model)
        if self.archive:
            stream = sorted(stream, key=lambda item: item[0])
        written = 0
        for index, (_, summary) in enumerate(stream):
            written += self.confirm(index) >= 0 and summary.numel()
        return written


def spread_batch(generator, cells=1200):
    fuel = torch.rand(cells, 10, generator=generator)
    wind = torch.randn(cells, 6, generator=generator)
    rate = (fuel.sum(1) * (1 + 0.3 * wind[:, 0])).unsqueeze(1)
    return torch.cat([fuel, wind], 1), rate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--publish-every", type=int, default=400)
    parser.add_argument("--archive-post", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    mirror = Mirror([0, 1], archive=rank == args.archive_post)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(1, args.steps + 1):
        x, y = spread_batch(generator)
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.publish_every == 0:
            written = mirror.publish(net)
            print(f"[post {rank}] step {step}: loss {loss.item():.4f}, {written} values mirrored", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
