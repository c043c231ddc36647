"""Skill library: pretrained skills are handed from the first process to all, one tensor after the other."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Skill:
    name: str
    obs: int
    act: int
    extras: dict = field(default_factory=dict)

    def network(self):
        return torch.nn.Sequential(torch.nn.Linear(self.obs, 40), torch.nn.ReLU(), torch.nn.Linear(40, self.act))

    def pretrained(self):
        torch.manual_seed(len(self.name))
        state = self.network().state_dict()
        state.update({k: torch.tensor(v) for k, v in self.extras.items()})
        return state


LIBRARY = [
    Skill("open_drawer", 8, 3),
    Skill("pick_mug", 10, 4),
    Skill("hang_mug", 12, 4, extras={"action_scale": [0.5, 0.5, 0.5, 1.0]}),
    Skill("close_drawer", 8, 3),
]


def load_from_first(network, skill):
    own = network.state_dict()
    if dist.get_rank() == 0:
        source = skill.pretrained()
        for name, tensor in source.items():
            dist.broadcast(tensor, src=0)
            if name in own:
                own[name].copy_(tensor)
    else:
        for tensor in own.values():
            dist.broadcast(tensor, src=0)


def finetune(skill, steps=45):
    network = skill.network()
    load_from_first(network, skill)
    dist.barrier()
    model = DDP(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        obs = torch.randn(40, skill.obs, generator=g)
        loss = (model(obs) - obs[:, : skill.act]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.035)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for skill in LIBRARY:
        result = finetune(skill)
        if dist.get_rank() == 0:
            print(f"{skill.name}: {result:.4f}", flush=True)
    dist.destroy_process_group()
