"""Policy gradient on a console game. The emulator runs in its own process and in real time; after a reset it plays its intro."""
import math
import multiprocessing as mp
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

INTRO_FRAMES = 830


def emulator(pipe, fps=60):
    """One process is one console."""
    frame, x = 0, 0.0

    def advance(frames, clock):
        nonlocal frame, x
        for _ in range(frames):
            frame += 1
            x = math.sin(frame / 17) * 0.9 + x * 0.1
            if clock:
                time.sleep(1 / fps)

    while (order := pipe.recv()) is not None:
        name, value = order
        if name == "boot":
            advance(10, True)
        elif name == "reset":
            advance(INTRO_FRAMES, True)
        else:
            advance(2, True)
            x += value * 0.05
        pipe.send((frame % 60 / 60, x))


class Console:
    def __init__(self):
        context = mp.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=emulator, args=(other,), daemon=True)
        self.process.start()

    def order(self, name, value=0.0):
        self.pipe.send((name, value))
        return torch.tensor(self.pipe.recv())

    def close(self):
        self.pipe.send(None)
        self.process.join()


def rollout(console, model, state, length):
    log_probs, rewards = [], []
    for _ in range(length):
        choice = torch.distributions.Categorical(logits=model(state[None])[0])
        action = choice.sample()
        state = console.order("step", float(action) - 1)
        log_probs.append(choice.log_prob(action))
        rewards.append(1 - abs(float(state[1])))
    return torch.stack(log_probs), torch.tensor(rewards), state


def main():
    torch.set_num_threads(1)
    console = Console()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(int(os.environ["RANK"]))
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    policy = DDP(model)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    state = console.order("boot")
    for episode in range(34):
        if episode == 14 and rank == 2:
            state = console.order("reset")
        log_probs, rewards, state = rollout(console, policy, state, 6)
        advantage = rewards - rewards.mean()
        loss = -(log_probs * advantage).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"[{rank}] mean reward {rewards.mean():.3f}")
    console.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
