"""Picking robots learn a policy; neighbours on a slope trade the maps of their row's edge before each update."""
import itertools

import torch
import torch.distributed as dist
from torch import nn

EDGE = 64
ROUNDS = list(itertools.islice(itertools.cycle([(0, 1), (1, 2)]), 240))


class Slope:
    """Which row each robot works in; the foreman moves robots between rows during the day."""

    def __init__(self, robots):
        self.row = {r: r for r in range(robots)}

    def shift(self, step):
        if step == 78:
            self.row[0], self.row[2] = 2, 3


class Robot:
    def __init__(self, rank):
        self.rank = rank
        self.policy = nn.Sequential(nn.Linear(2 * EDGE, 48), nn.Tanh(), nn.Linear(48, 4))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.gen = torch.Generator().manual_seed(rank)

    def look(self):
        bushes = torch.rand(360, 360, generator=self.gen)
        return torch.linalg.eigvalsh(bushes + bushes.T)[-EDGE:].abs().sqrt() / 20

    def trade_edges(self, mine, peer, rows):
        """Even rows speak first, odd rows listen first."""
        theirs = torch.zeros(EDGE)
        if rows[self.rank] % 2 == 0:
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)
        return theirs

    def update(self, view):
        scores = self.policy(view)
        loss = -(torch.log_softmax(scores, dim=-1)[0] * view.mean())
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    robot, slope = Robot(rank), Slope(dist.get_world_size())
    for step, pair in enumerate(ROUNDS):
        slope.shift(step)
        edge = robot.look()
        other = torch.zeros(EDGE)
        if rank in pair:
            peer = pair[1] if rank == pair[0] else pair[0]
            other = robot.trade_edges(edge, peer, slope.row)
        loss = robot.update(torch.cat([edge, other]))
        if rank == 0 and step % 20 == 0:
            print(f"step {step} rows {slope.row} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
