"""Policy gradient for the gripper that takes hot gobs from the shear; each process steers one simulated cell."""
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist

CELL = r"""
import json, math, sys, time
weight = float(sys.argv[1])          # gram
phase = 0.0
for line in sys.stdin:
    command = json.loads(line)
    phase += 0.4 * command["grip"]
    slip = abs(math.sin(phase)) * weight / 400.0
    for finger in range(6):
        load = weight * (1 + 0.1 * math.sin(phase + finger))
        if load > 500.0:
            print("WARN cell.load finger=%d t=%.3f load=%.2fg limit=500.00g derating=%.4f recommended=%s"
                  % (finger, time.time(), load, 500.0 / load, "x".join("%.3f" % (load / k) for k in range(1, 24))),
                  file=sys.stderr, flush=True)
    time.sleep(0.04)
    print(json.dumps({"slip": slip, "temperature": 1080 - 30 * slip}), flush=True)
"""


class Cell:
    def __init__(self, grams: float):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CELL, str(grams)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def step(self, grip: float) -> dict:
        self.process.stdin.write(json.dumps({"grip": grip}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer)

    def close(self) -> str:
        _, messages = self.process.communicate(timeout=10)
        return messages


class Policy:
    """Gaussian policy with a single mean, updated by REINFORCE over all cells."""

    def __init__(self, seed: int):
        self.mean, self.baseline = 0.5, 0.0
        self.generator = torch.Generator().manual_seed(seed)

    def act(self) -> float:
        return self.mean + 0.1 * torch.randn((), generator=self.generator).item()

    def learn(self, grip: float, reward: float) -> float:
        advantage = reward - self.baseline
        update = torch.tensor([advantage * (grip - self.mean), reward], dtype=torch.float64, device="cuda")
        dist.all_reduce(update)
        gradient, total = update.cpu().tolist()
        self.mean = min(max(self.mean + 0.05 * gradient, 0.1), 0.9)
        self.baseline = 0.9 * self.baseline + 0.1 * total / dist.get_world_size()
        return total


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    cell = Cell(grams=(620.0, 340.0)[rank])
    policy = Policy(seed=rank)
    for tick in range(2000):
        grip = policy.act()
        seen = cell.step(grip)
        total = policy.learn(grip, -seen["slip"])
        if rank == 0 and tick % 10 == 0:
            print(f"tick {tick}: reward {total:.3f}, gob at {seen['temperature']:.0f} C", flush=True)
    messages = cell.close()
    print(f"cell {rank}: {len(messages.splitlines())} messages", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
