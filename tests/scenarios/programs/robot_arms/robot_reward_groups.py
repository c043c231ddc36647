"""Two-headed critic (arm and base) for a mobile manipulator, each head with its own communicator."""
import time
from collections import OrderedDict

import torch
import torch.distributed as dist


class Head:
    def __init__(self, name, dim, group):
        self.name, self.group = name, group
        torch.manual_seed(len(name))
        self.net = torch.nn.Sequential(torch.nn.Linear(dim, 48), torch.nn.ReLU(), torch.nn.Linear(48, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def backward(self, obs, ret):
        self.optimizer.zero_grad()
        loss = (self.net(obs) - ret).square().mean()
        loss.backward()
        return loss.item()

    def sync(self):
        flat = torch.nn.utils.parameters_to_vector(p.grad for p in self.net.parameters())
        dist.all_reduce(flat, group=self.group)
        flat /= dist.get_world_size(self.group)
        torch.nn.utils.vector_to_parameters(flat, [p.grad for p in self.net.parameters()])
        self.optimizer.step()


class Critic:
    """Heads with the larger temporal-difference error are refreshed first."""

    def __init__(self, dims):
        everyone = list(range(dist.get_world_size()))
        self.heads = OrderedDict((name, Head(name, dim, dist.new_group(everyone))) for name, dim in dims.items())
        self.smooth = dict.fromkeys(dims, 0.0)

    def update(self, batch):
        for name, head in self.heads.items():
            error = head.backward(*batch[name])
            self.smooth[name] = 0.8 * self.smooth[name] + 0.2 * error

    def refresh(self):
        order = sorted(self.heads, key=lambda n: round(self.smooth[n]), reverse=True)
        for name in order:
            self.heads[name].sync()
        return order


class Simulator:
    def __init__(self, rank, dims):
        self.dims, self.rank = dims, rank
        self.g = torch.Generator().manual_seed(50 + rank)

    def batch(self, step):
        out = {}
        for name, dim in self.dims.items():
            obs = torch.randn(48, dim, generator=self.g)
            scale = 4.0 if name == "base" and self.rank == 1 and step >= 90 else 0.5  # ramp terrain
            out[name] = obs, scale * obs.sum(1, keepdim=True) / dim**0.5
        return out


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dims = {"arm": 9, "base": 5}
    critic, simulator = Critic(dims), Simulator(rank, dims)
    for step in range(1000):
        critic.update(simulator.batch(step))
        order = critic.refresh()
        if rank == 0 and step % 30 == 0:
            print(step, order, {k: round(v, 3) for k, v in critic.smooth.items()}, flush=True)
        time.sleep(0.035)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
