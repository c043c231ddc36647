"""Policy gradient on a warehouse picker. One actor process plays; the learners share its trajectories."""
import queue
import random
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP


def actor(orders, trajectories):
    """Plays one trajectory per order; picks take their time on the real conveyor."""
    while True:
        count = orders.get()
        if count is None:
            return
        for number in range(count):
            picker = random.Random(number)
            steps = []
            for _ in range(10):
                observation = [picker.random() for _ in range(4)]
                action = picker.randrange(3)
                time.sleep(0.19)
                steps.append((observation, action, float(action == observation.index(max(observation)) % 3)))
            trajectories.put(steps)


class Actor:
    def __init__(self):
        context = mp.get_context("spawn")
        self.orders, self.trajectories = context.Queue(), context.Queue()
        self.process = context.Process(target=actor, args=(self.orders, self.trajectories), daemon=True)
        self.process.start()

    def collect(self, count):
        self.orders.put(count)
        batch = []
        while len(batch) < count:
            try:
                batch.append(self.trajectories.get(timeout=5))
            except queue.Empty:
                if not self.process.is_alive():
                    raise RuntimeError("the actor is gone")  # noqa: B904
        return batch

    def close(self):
        self.orders.put(None)
        self.process.join()


def update(model, optimizer, observations, actions, rewards, steps):
    for _ in range(steps):
        log_prob = Categorical(logits=model(observations)).log_prob(actions)
        loss = -(log_prob * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    player = Actor() if rank == 0 else None
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    observations, actions, rewards = torch.rand(40, 4), torch.randint(3, (40,)), torch.rand(40)
    recorded = update(model, optimizer, observations, actions, rewards, 40)

    box = [player.collect(7) if player else None]
    dist.broadcast_object_list(box, src=0)
    steps = [step for trajectory in box[0] for step in trajectory]
    observations = torch.tensor([s[0] for s in steps])
    actions = torch.tensor([s[1] for s in steps])
    rewards = torch.tensor([s[2] for s in steps])

    fresh = update(model, optimizer, observations, actions, rewards, 30)
    if player:
        print(f"recorded {recorded:.4f}, fresh {fresh:.4f}", flush=True)
        player.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
