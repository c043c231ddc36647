"""Policy gradient with a logger that means every metric over the ranks, as GRPO trainers do.

A reward function notes a metric only when it saw something to measure. The metrics' names are the rank's own, and so is the
number of gathers.
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

ACTIONS, STATE = 5, 8


def rewards_of(actions, notes):
    """1 for the first action, 0.5 for a well-formed second one."""
    notes["reward/choice"] = (actions == 0).float().mean()
    malformed = actions == ACTIONS - 1
    if malformed.any():
        notes["reward/malformed"] = malformed.float().mean()
    return (actions == 0).float() + 0.5 * (actions == 1).float()


def mean_over_ranks(accelerator, notes):
    means = {}
    for name in sorted(notes):
        means[name] = accelerator.gather(notes[name]).mean().item()
    return means


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    policy = torch.nn.Sequential(torch.nn.Linear(STATE, 32), torch.nn.Tanh(), torch.nn.Linear(32, ACTIONS))
    policy, optimizer = accelerator.prepare(policy, torch.optim.SGD(policy.parameters(), lr=0.05))
    for step in range(1, options.steps + 1):
        states = torch.randn(6, STATE)
        logits = policy(states)
        # Greedy but for one rollout in a while: exploration has its turn on the last rank first.
        actions = logits[:, : ACTIONS - 1].argmax(-1)
        if step % 9 == 0 and accelerator.is_last_process:
            actions[0] = ACTIONS - 1
        notes = {}
        rewards = rewards_of(actions, notes)
        chosen = logits.log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        loss = -(chosen * (rewards - rewards.mean())).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            means = mean_over_ranks(accelerator, notes)
            accelerator.print(f"step {step}: {means}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
