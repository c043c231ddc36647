"""Policy gradient for the final approach (V-bar) of a docking chaser; one worker per rank, gradients averaged by hand."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn as nn


@dataclasses.dataclass
class Approach:
    start_m: float = 12.0
    dt: float = 0.5
    corridor_m: float = 1.5
    horizon: int = 40


class Dock:
    """Relative motion in one axis and a lateral error; ends at contact or when the corridor is left."""

    def __init__(self, cfg, gen, start_m):
        self.cfg, self.gen, self.start_m = cfg, gen, start_m
        self.reset()

    def reset(self):
        self.range = self.start_m
        self.rate = -0.2
        self.side = float(torch.randn(1, generator=self.gen)) * 0.2
        self.age = 0
        return self.state()

    def state(self):
        return torch.tensor([self.range / 10, self.rate, self.side])

    def act(self, push):
        self.rate += float(push[0]) * 0.05 - 0.01
        self.rate = min(max(self.rate, -0.6), -0.25)
        self.side += float(push[1]) * 0.01
        self.range += self.rate * self.cfg.dt
        self.age += 1
        done = self.range <= 0 or self.age >= 8 * self.cfg.horizon
        return self.state(), -abs(self.side) - 0.01, done


class Worker:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.cfg = Approach()
        self.gen = torch.Generator().manual_seed(rank)
        self.env = Dock(self.cfg, self.gen, self.cfg.start_m)
        self.policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        self.opt = torch.optim.SGD(self.policy.parameters(), lr=1e-3)
        self.finished = []
        self.total = 0.0

    def collect(self):
        state, terms = self.env.state(), []
        for _ in range(self.cfg.horizon * 3):
            mean = self.policy(state)
            push = (mean + 0.3 * torch.randn(2, generator=self.gen)).detach()
            state, reward, done = self.env.act(push.clamp(-1, 1))
            terms.append(((push - mean) ** 2).sum() * reward)
            self.total += reward
            if done:
                self.finished.append(self.total)
                self.total = 0.0
                state = self.env.reset()
        return torch.stack(terms).mean()

    def report(self, update):
        """Average return of the approaches that ended in this update."""
        if not self.finished:
            return None
        mine = torch.tensor([sum(self.finished), float(len(self.finished))])
        table = [torch.zeros(2) for _ in range(self.world)]
        dist.all_gather(table, mine)
        self.finished.clear()
        total = torch.stack(table).sum(0)
        if self.rank == 0 and update % 5 == 0:
            print(f"update {update} return {float(total[0] / total[1]):.3f} from {int(total[1])} approaches", flush=True)
        return total

    def update(self, step):
        loss = self.collect()
        self.opt.zero_grad()
        loss.backward()
        self.report(step)
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.opt.step()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    worker = Worker(dist.get_rank(), dist.get_world_size())
    for step in range(400):
        if step == 45:  # curriculum: far-field starts are spread over the workers
            worker.env.start_m = [12.0, 13.0, 300.0, 11.0][worker.rank]
            worker.env.reset()
        worker.update(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
