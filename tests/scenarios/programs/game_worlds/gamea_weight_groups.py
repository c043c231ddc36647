"""Asynchronous play: rank 1 acts, the others learn. Learners share gradients, an evaluation group of all ranks is made when first needed."""
import dataclasses

import torch
import torch.distributed as dist
from torch import nn


@dataclasses.dataclass
class Roles:
    rank: int
    world: int
    actors: tuple = (1,)

    @property
    def learners(self):
        return [r for r in range(self.world) if r not in self.actors]

    @property
    def is_learner(self):
        return self.rank not in self.actors


class Groups:
    """Process groups by name, made at first use."""

    def __init__(self, roles):
        self.roles, self._groups = roles, {}

    def get(self, name):
        if name not in self._groups:
            members = {"learners": self.roles.learners, "tournament": list(range(self.roles.world))}[name]
            self._groups[name] = dist.new_group(members)
        return self._groups[name]


class Player(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(36, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 9))

    def forward(self, x):
        return self.net(x)


class Worker:
    def __init__(self, roles):
        self.roles, self.groups = roles, Groups(roles)
        torch.manual_seed(0)
        self.player = Player()
        self.optim = torch.optim.Adam(self.player.parameters(), lr=5e-4)
        self.rng = torch.Generator().manual_seed(roles.rank)

    def act(self, games=256):
        boards = torch.randn(games, 36, generator=self.rng)
        with torch.no_grad():
            for _ in range(8):
                move = self.player(boards).argmax(1)
                boards = boards.roll(1, dims=1) + 0.01 * move[:, None]
        return boards

    def learn(self, boards):
        loss = nn.functional.cross_entropy(self.player(boards), (boards[:, :9] + boards[:, 9:18]).argmax(1))
        self.optim.zero_grad()
        loss.backward()
        for p in self.player.parameters():
            dist.all_reduce(p.grad, group=self.groups.get("learners"))
            p.grad /= len(self.roles.learners)
        self.optim.step()
        return loss.item()

    def sync(self):
        for p in self.player.parameters():
            dist.broadcast(p.data, src=self.roles.learners[0])

    def tournament(self, games=512):
        boards = torch.randn(games, 36, generator=self.rng)
        with torch.no_grad():
            won = (self.player(boards).argmax(1) == boards[:, :9].argmax(1)).float().mean()
        dist.all_reduce(won, group=self.groups.get("tournament"))
        return won.item() / self.roles.world


def main(iterations=600, tournament_every=120):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    roles = Roles(dist.get_rank(), dist.get_world_size())
    worker = Worker(roles)
    for iteration in range(1, iterations + 1):
        if roles.is_learner:
            experience = torch.empty(256, 36)
        else:
            experience = worker.act()
        dist.broadcast(experience, src=roles.actors[0])
        loss = worker.learn(experience) if roles.is_learner else None
        worker.sync()
        if roles.rank == 0 and iteration % 20 == 0:
            print(f"iteration {iteration} loss {loss:.3f}", flush=True)
        if iteration % tournament_every == 0:
            won = worker.tournament()
            if roles.rank == 0:
                print(f"tournament after {iteration}: {won:.1%}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
