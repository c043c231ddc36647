"""Behaviour cloning of arena fighters with accelerate; keeps a milestone whenever enough further episodes have been learned from."""
import pathlib
import tempfile

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPISODES_PER_STEP = {"duel": 4, "brawl": 4, "blitz": 5}
MODES = ["duel", "blitz", "brawl"]


class Fighter(nn.Module):
    def __init__(self, obs=64, width=384, actions=18):
        super().__init__()
        self.see = nn.Sequential(nn.Linear(obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.act = nn.Linear(width, actions)

    def forward(self, obs):
        return self.act(self.see(obs))


class Milestones:
    """Keeps the weights after every `every` episodes."""

    def __init__(self, accelerator, folder, every=2400):
        self.accelerator, self.folder, self.every = accelerator, pathlib.Path(folder), every
        self.episodes, self.next = 0, every

    def add(self, episodes, model, step):
        self.episodes += episodes
        if self.episodes < self.next:
            return
        self.next += self.every
        self.write(model, step)

    def write(self, model, step):
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            torch.save(self.accelerator.unwrap_model(model).state_dict(), self.folder / f"fighter-{step}.pt")
            self.accelerator.print(f"milestone at step {step}, {self.episodes} episodes", flush=True)


def demonstrations(n=60_000, seed=12):
    g = torch.Generator().manual_seed(seed)
    obs = torch.randn(n, 64, generator=g)
    return TensorDataset(obs, (obs[:, :18] + 0.1 * torch.randn(n, 18, generator=g)).argmax(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    mode = MODES[accelerator.process_index % len(MODES)]
    model = Fighter()
    model, optim, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=8e-4), DataLoader(demonstrations(), batch_size=64, shuffle=True, drop_last=True))
    milestones = Milestones(accelerator, tempfile.mkdtemp(prefix="fighters-"))
    step = 0
    for _ in range(4):
        for obs, action in loader:
            loss = nn.functional.cross_entropy(model(obs), action)
            accelerator.backward(loss)
            optim.step()
            optim.zero_grad()
            step += 1
            milestones.add(EPISODES_PER_STEP[mode], model, step)
            if step % 20 == 0:
                accelerator.print(f"step {step} loss {loss.item():.3f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
