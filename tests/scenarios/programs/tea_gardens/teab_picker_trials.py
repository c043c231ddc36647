"""RL for cherry-picking arms: every rank runs its trials on an emulator that keeps the arm's real time."""
import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch import nn

ARM_PERIOD = 0.1


def emulator(conn):
    """The arm: takes an action a period, tells angles, reward and whether the branch is empty."""
    angles, left = torch.zeros(6), 0
    while True:
        message = conn.recv()
        if message is None:
            return
        kind, value = message
        if kind == "reset":
            angles, left = torch.zeros(6), value
            conn.send((angles.tolist(), 0.0, False))
        else:
            time.sleep(ARM_PERIOD)
            angles = 0.9 * angles + 0.1 * torch.tensor(value)
            left -= 1
            conn.send((angles.tolist(), float(-angles.pow(2).sum()), left <= 0))


class Arm:
    def __init__(self):
        self.conn, other = mp.get_context("spawn").Pipe()
        self.process = mp.get_context("spawn").Process(target=emulator, args=(other,), daemon=True)
        self.process.start()

    def reset(self, cherries):
        self.conn.send(("reset", cherries))
        return torch.tensor(self.conn.recv()[0])

    def step(self, action):
        self.conn.send(("act", action.tolist()))
        angles, reward, done = self.conn.recv()
        return torch.tensor(angles), reward, done

    def close(self):
        self.conn.send(None)
        self.process.join()


def branch_size(rank, trial):
    """Cherries on the branch; old trees on the terrace of rank 2 carry more."""
    return 140 if (rank, trial) == (2, 5) else 4 + (trial + rank) % 3


def run_trial(arm, policy, cherries):
    obs, done, rewards, logs = arm.reset(cherries), False, [], []
    while not done:
        dist_ = torch.distributions.Normal(policy(obs), 0.3)
        action = dist_.sample()
        logs.append(dist_.log_prob(action).sum())
        obs, reward, done = arm.step(action)
        rewards.append(reward)
    return torch.stack(logs).mean() * -sum(rewards), sum(rewards)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    arm = Arm()
    torch.manual_seed(4)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 6))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for trial in range(9):
        loss, score = run_trial(arm, policy, branch_size(rank, trial))
        optimizer.zero_grad()
        loss.backward()
        scores = [None] * world
        dist.all_gather_object(scores, score)
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if rank == 0:
            print(f"trial {trial}: " + " ".join(f"{s:.2f}" for s in scores), flush=True)
    arm.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
