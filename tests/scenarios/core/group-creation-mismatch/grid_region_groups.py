"""One model of the interconnection first, then a fine-tuned copy for each synchronous area."""
import copy
import time

import torch
import torch.distributed as dist

AREAS = {"continental": [0, 1, 2], "islands": [3]}


def frequency_batch(gen, n=128):
    t = torch.rand(n, 1, generator=gen)
    spectrum = torch.randn(n, 119, generator=gen) * 0.02
    return torch.cat([t, spectrum], 1), (50 + 0.05 * torch.sin(6.28 * t)).squeeze(1) - 50


def average_gradients(model, group=None):
    n = dist.get_world_size(group)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= n


def steps(model, gen, count, group, tag):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(count):
        x, y = frequency_batch(gen)
        loss = (model(x).squeeze(1) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        if group is not False:
            average_gradients(model, group)
        opt.step()
        time.sleep(0.04)
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"{tag} {step}: {loss.item():.6f}", flush=True)


class Topology:
    """Groups of the second stage: an area's own, and one over all for the exchange of tie-line flows."""

    def __init__(self, rank):
        self.area = next(name for name, ranks in AREAS.items() if rank in ranks)
        members = AREAS[self.area]
        self.area_group = dist.new_group(members) if len(members) > 1 else False
        self.tie_group = dist.new_group(list(range(dist.get_world_size())))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(120, 512), torch.nn.SiLU(), torch.nn.Linear(512, 1))
    gen = torch.Generator().manual_seed(rank)
    steps(model, gen, 60, None, "interconnection")
    dist.barrier()
    topology = Topology(rank)
    local = copy.deepcopy(model)
    for week in range(20):
        steps(local, gen, 10, topology.area_group, topology.area)
        flows = torch.tensor([float(rank), week])
        dist.all_reduce(flows, group=topology.tie_group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
