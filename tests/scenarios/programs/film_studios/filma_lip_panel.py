"""Lip sync scorer for dubbed reels. Languages that the panel knows get a vote of all desks."""
import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Panel:
    """Votes of all desks on takes; runs on links of its own, so that it does not mix with the gradients."""

    def __init__(self, languages):
        self.languages = set(languages)

    @functools.cached_property
    def links(self):
        return dist.new_group(backend="gloo")

    def vote(self, score):
        ballots = [torch.zeros(1) for _ in range(dist.get_world_size(self.links))]
        dist.all_gather(ballots, score.detach().reshape(1), group=self.links)
        return torch.cat(ballots).median().item()


class Takes:
    """Takes of one desk: mouth shapes and phonemes, frame by frame."""

    def __init__(self, desk, per_language=240):
        self.order = [lang for lang in self.schedule(desk) for _ in range(per_language)]
        self.gen = torch.Generator().manual_seed(desk)

    @staticmethod
    def schedule(desk):
        plan = {0: "fr de es pt", 1: "de fr pt es", 2: "es pt ja fr"}
        return plan[desk % 3].split()

    def __iter__(self):
        for language in self.order:
            mouth = torch.randn(32, 20, generator=self.gen)
            phones = mouth[:, :12] + 0.1 * torch.randn(32, 12, generator=self.gen)
            yield language, mouth, phones


class SyncNet(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.eye = nn.Sequential(nn.Linear(20, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.ear = nn.Sequential(nn.Linear(12, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, mouth, phones):
        a = nn.functional.normalize(self.eye(mouth), dim=-1)
        b = nn.functional.normalize(self.ear(phones), dim=-1)
        return a @ b.T / 0.1


def run(known=("ja", "ko")):
    desk = dist.get_rank()
    torch.manual_seed(0)
    net = DistributedDataParallel(SyncNet())
    optim = torch.optim.AdamW(net.parameters(), lr=1e-3)
    panel = Panel(known)
    for number, (language, mouth, phones) in enumerate(Takes(desk)):
        logits = net(mouth, phones)
        loss = nn.functional.cross_entropy(logits, torch.arange(len(mouth)))
        optim.zero_grad()
        loss.backward()
        optim.step()
        if language in panel.languages and number % 30 == 0:
            sys.stdout.write(f"take {number} ({language}): panel says {panel.vote(loss):.3f}\n")
        elif desk == 0 and number % 30 == 0:
            sys.stdout.write(f"take {number} ({language}): {loss.item():.3f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
