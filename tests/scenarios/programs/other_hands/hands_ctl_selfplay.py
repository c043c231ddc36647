"""Self-play: actors send games to a learner, which updates for a good while and sends weights back."""

import time

import torch
import torch.distributed as dist
from torch import nn

LEARNER = 0


def flatten(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


class ActorLoop:
    def __init__(self, model):
        self.model, self.weights = model, flatten(model)

    def run(self, generations):
        for generation in range(generations):
            games = torch.randn(64, 9)
            with torch.no_grad():
                games[:, 0] = self.model(games).squeeze(1)
            time.sleep(0.5)
            dist.send(games, dst=LEARNER, tag=generation)
            dist.recv(self.weights, src=LEARNER, tag=generation)
            nn.utils.vector_to_parameters(self.weights, self.model.parameters())


class LearnerLoop:
    def __init__(self, model, actors):
        self.model, self.actors = model, actors

    def run(self, generations):
        for generation in range(generations):
            games = [torch.empty(64, 9) for _ in self.actors]
            for actor, buffer in zip(self.actors, games):
                dist.recv(buffer, src=actor, tag=generation)
            end, updates = time.monotonic() + (4, 10, 4, 10)[generation], 0
            while time.monotonic() < end:
                loss = (self.model(torch.cat(games)) - 1).square().mean()
                self.model.zero_grad()
                loss.backward()
                for p in self.model.parameters():
                    p.data -= 0.01 * p.grad
                updates += 1
                time.sleep(0.02)
            for actor in self.actors:
                dist.send(flatten(self.model), dst=actor, tag=generation)
            print(f"generation {generation}: {updates} updates, loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(9, 32), nn.Tanh(), nn.Linear(32, 1))
    actors = [r for r in range(dist.get_world_size()) if r != LEARNER]
    (LearnerLoop(model, actors) if dist.get_rank() == LEARNER else ActorLoop(model)).run(4)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
