"""Generative linker design; now and then the best designs go to a slow physics referee, one after another."""
import json
import subprocess
import sys
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REFEREE = r"""
import json, math, sys, time
def relax(seed, budget):
    end, steps, energy = time.monotonic() + budget, 0, 0.0
    while time.monotonic() < end:
        energy = 0.99 * energy + math.sin(seed + steps * 0.01)
        steps += 1
        if steps % 2000 == 0:
            time.sleep(0.005)
    return energy
for line in sys.stdin:
    job = json.loads(line)
    energy = relax(job["seed"], job["budget"])
    sys.stdout.write(json.dumps({"id": job["id"], "energy": round(energy, 4)}) + "\n")
    sys.stdout.flush()
"""


@dataclass
class Config:
    steps: int = 240
    review_at: int = 120
    designs: int = 11
    budget: float = 1.2
    referee_host: int = 1


@dataclass
class Referee:
    budget: float
    answers: list = field(default_factory=list)

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", REFEREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *details):
        self.process.stdin.close()
        self.process.wait(timeout=20)

    def judge(self, number: int, seed: float) -> float:
        self.process.stdin.write(json.dumps({"id": number, "seed": seed, "budget": self.budget}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.answers.append(answer)
        return answer["energy"]


def review(config: Config, designs: torch.Tensor) -> torch.Tensor:
    energies = torch.zeros(config.designs)
    if dist.get_rank() == config.referee_host:
        with Referee(config.budget) as referee:
            for number, seed in enumerate(designs.tolist()):
                energies[number] = referee.judge(number, seed)
                print(f"referee: design {number} at {energies[number]:.3f}", flush=True)
    dist.all_reduce(energies)
    return energies


def main(config=Config()):  # noqa: B008
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    reward = torch.zeros(())
    for step in range(1, config.steps + 1):
        latent = torch.randn(256, 12)
        score = model(latent).squeeze(-1)
        loss = (score - latent.square().mean(1) - 0.01 * reward).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == config.review_at:
            best = score.detach().topk(config.designs).values
            reward = review(config, best).mean()
    print(f"rank {dist.get_rank()}: loss {loss.item():.4f}, referee mean {reward.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
