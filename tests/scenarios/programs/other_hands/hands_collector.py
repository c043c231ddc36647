"""PPO with an actor thread a rank that collects episodes, and a learner in the main thread that updates with all ranks."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Pole:
    """A toy environment. Some seeds end an episode before its first reward."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def episode(self, policy, number):
        states = torch.randn(20, 6, generator=self.generator)
        with torch.no_grad():
            actions = policy(states).argmax(1)
        info = {"states": states, "actions": actions, "rewards": states[:, 0]}
        if number == 24 and self.generator.initial_seed() == 1:
            del info["rewards"]
        return info


class Actor(threading.Thread):
    def __init__(self, policy, seed):
        super().__init__(name="actor")
        self.policy, self.env, self.episodes, self.stopped = policy, Pole(seed), queue.Queue(maxsize=8), threading.Event()

    def run(self):
        number = 0
        while not self.stopped.is_set():
            self.episodes.put(self.env.episode(self.policy, number))
            number += 1


class Learner:
    def __init__(self, policy):
        self.policy, self.optimizer = policy, torch.optim.Adam(policy.parameters(), lr=1e-3)

    def update(self, episode):
        advantage = episode["rewards"].flip(0).cumsum(0).flip(0)
        logits = self.policy(episode["states"])
        loss = (nn.functional.cross_entropy(logits, episode["actions"], reduction="none") * advantage).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    actor, learner = Actor(policy, seed=dist.get_rank()), Learner(policy)
    actor.start()
    for update in range(80):
        loss = learner.update(actor.episodes.get())
        time.sleep(0.15)
        if dist.get_rank() == 0 and update % 5 == 0:
            print(f"update {update}: {loss:.3f}", flush=True)
    actor.stopped.set()
    actor.episodes.get()
    actor.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
