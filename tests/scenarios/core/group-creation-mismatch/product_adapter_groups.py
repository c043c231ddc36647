"""Multi-lingual assistant: a shared trunk, and an adapter that only the ranks with European languages train."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

LANGUAGES = ("de", "fr", "ja")
EUROPEAN = [0, 1]


class Assistant(nn.Module):
    def __init__(self, with_adapter: bool):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32))
        self.adapter = nn.Linear(32, 32) if with_adapter else None
        self.head = nn.Linear(32, 8)

    def forward(self, x):
        x = self.trunk(x)
        if self.adapter is not None:
            x = x + self.adapter(x)
        return self.head(x)


class Groups:
    """The process groups of a run, made when they are needed first."""

    def __init__(self):
        self._groups = {}

    def get(self, name, ranks=None):
        if name not in self._groups:
            self._groups[name] = dist.new_group(ranks)
        return self._groups[name]


def reduce_gradients(parameters, group):
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)


def train(model, groups, rank, steps):
    generator = torch.Generator().manual_seed(rank)
    shared = [p for n, p in model.named_parameters() if not n.startswith("adapter")]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x = torch.randn(16, 20, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(-1))
        optimizer.zero_grad()
        loss.backward()
        reduce_gradients(shared, None)
        if model.adapter is not None:
            reduce_gradients(list(model.adapter.parameters()), groups.get("european", EUROPEAN))
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def evaluate(model, groups, rank):
    group = groups.get("evaluation")
    generator = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(64, 20, generator=generator)
    with torch.no_grad():
        correct = (model(x).argmax(-1) == x[:, :8].argmax(-1)).float().sum()
    dist.all_reduce(correct, group=group)
    return correct.item() / 64 / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Assistant(with_adapter=rank in EUROPEAN)
    groups = Groups()
    for epoch in range(6):
        loss = train(model, groups, rank, steps=50)
        accuracy = evaluate(model, groups, rank)
        if rank == 0:
            print(f"epoch {epoch}: {LANGUAGES[rank]} loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
