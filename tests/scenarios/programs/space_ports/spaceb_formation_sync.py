"""Formation flying: relative navigation policy and a shared landmark map, each kept in step through a group of its own."""
import abc
import time

import torch
import torch.distributed as dist


class Shared(abc.ABC):
    def __init__(self, group, world):
        self.group, self.world = group, world
        self.pending = 0

    def note(self, amount):
        self.pending += amount

    def sync(self):
        self.exchange()
        self.pending = 0

    @abc.abstractmethod
    def exchange(self):
        ...


class Policy(Shared):
    def __init__(self, group, world):
        super().__init__(group, world)
        self.net = torch.nn.Linear(12, 6)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-2)

    def practise(self, gen):
        offset = torch.randn(20, 12, generator=gen)
        thrust = self.net(offset)
        (thrust + offset[:, :6]).square().mean().backward()
        self.note(1)

    def exchange(self):
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat, group=self.group)
        flat /= self.world * max(self.pending, 1)
        weight, bias = flat.split([72, 6])
        self.net.weight.grad.copy_(weight.view(6, 12))
        self.net.bias.grad.copy_(bias)
        self.opt.step()
        self.opt.zero_grad(set_to_none=False)


class LandmarkMap(Shared):
    def __init__(self, group, world, side=32):
        super().__init__(group, world)
        self.tile = torch.zeros(side, side)

    def observe(self, count, gen):
        where = torch.randint(0, self.tile.numel(), (count,), generator=gen)
        self.tile.view(-1)[where] += 1.0
        self.note(count)

    def exchange(self):
        parts = [torch.empty_like(self.tile) for _ in range(self.world)]
        dist.all_gather(parts, self.tile, group=self.group)
        self.tile = torch.stack(parts).amax(dim=0)


def landmarks_in_view(craft, tick):
    """Landmarks per ten ticks; craft 2 passes over the crater field from tick 70 on."""
    if craft == 2 and tick >= 70:
        return 3
    return 1 if tick % 3 == 0 else 0


def fly(craft, world, ticks=300):
    everyone = list(range(world))
    policy = Policy(dist.new_group(everyone), world)
    chart = LandmarkMap(dist.new_group(everyone), world)
    gen = torch.Generator().manual_seed(craft)
    for tick in range(1, ticks + 1):
        policy.practise(gen)
        chart.observe(landmarks_in_view(craft, tick), gen)
        time.sleep(0.025)
        if tick % 10 == 0:
            # whatever has most to say goes first on the inter-satellite link
            for shared in sorted((policy, chart), key=lambda s: s.pending, reverse=True):
                shared.sync()
            if craft == 0:
                print(f"tick {tick} map {int(chart.tile.sum())} |w| {policy.net.weight.norm():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    fly(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
