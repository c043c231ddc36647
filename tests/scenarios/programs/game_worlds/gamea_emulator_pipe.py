"""Actor-critic on an arcade emulator that runs as a program of its own and speaks lines of JSON over its pipes."""
import json
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EMULATOR = r"""
import json, random, sys
cart, level = sys.argv[1], sys.argv[2]
rng, tick, ram = random.Random(cart), 0, [0.0] * 24
for line in sys.stdin:
    action = json.loads(line)["action"]
    tick += 1
    ram = [0.9 * v + rng.gauss(0, 1) * (1 + 0.1 * action) for v in ram]
    if level == "trace" or tick % 500 == 0:
        print(f"{cart} tick {tick} points {sum(ram[:3]):+.2f}", file=sys.stderr, flush=True)
    print(json.dumps({"ram": ram, "points": sum(ram[:3])}), flush=True)
"""
CARTS = [{"cart": "meteor", "level": "info"}, {"cart": "pond", "level": "info"}, {"cart": "lander", "level": "trace"}]


class Emulator:
    def __init__(self, cart, level):
        self.process = subprocess.Popen(
            [sys.executable, "-c", EMULATOR, cart, level], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def step(self, action):
        self.process.stdin.write(json.dumps({"action": action}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return torch.tensor(answer["ram"]), answer["points"]

    def close(self):
        self.process.stdin.close()
        for line in self.process.stderr:
            print("emulator:", line.rstrip())
        self.process.wait()


class ActorCritic(nn.Module):
    def __init__(self, width=256, actions=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, ram):
        h = self.body(ram)
        return self.actor(h).log_softmax(-1), self.critic(h).squeeze(-1)


def rollout(emulator, policy, ram, length):
    seen, taken, points = [], [], []
    for _ in range(length):
        with torch.no_grad():
            action = policy(ram)[0].exp().multinomial(1).item()
        seen.append(ram)
        taken.append(action)
        ram, gained = emulator.step(action)
        points.append(gained)
    return torch.stack(seen), torch.tensor(taken), torch.tensor(points), ram


def main(updates=2000, length=8):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = DistributedDataParallel(ActorCritic())
    optim = torch.optim.Adam(policy.parameters(), lr=3e-4)
    emulator, ram = Emulator(**CARTS[(rank + 1) % 3]), torch.zeros(24)
    for update in range(updates):
        seen, taken, points, ram = rollout(emulator, policy.module, ram, length)
        logp, value = policy(seen)
        advantage = points - value
        loss = -(logp.gather(1, taken[:, None]).squeeze(1) * advantage.detach()).mean() + advantage.square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if update % 10 == 0 and rank == 0:
            print(f"update {update} points {points.mean().item():+.2f}", flush=True)
    emulator.close()
    dist.destroy_process_group()


main()
