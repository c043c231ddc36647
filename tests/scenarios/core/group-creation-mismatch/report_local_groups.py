"""Pipeline stages with tied embeddings; groups are created by their members only, to save start-up time."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
STAGES = 4


def make_group(ranks):
    if dist.get_rank() not in ranks:
        return None
    return dist.new_group(ranks, use_local_synchronization=True)


class ParallelState:
    """Groups are made when they are first asked for."""

    def __init__(self, config):
        self.config = config
        self._groups = {}

    def group(self, kind):
        if kind not in self._groups:
            self._groups[kind] = make_group(self._ranks(kind))
        return self._groups[kind]

    def _ranks(self, kind):
        if kind == "head":
            return [STAGES - 1, STAGES - 2]
        if kind == "embedding":
            return [0, 1, STAGES - 1]
        return list(range(STAGES))


class Stage:
    def __init__(self, state):
        self.rank = dist.get_rank()
        self.state = state
        torch.manual_seed(self.rank)
        self.table = nn.Embedding(50, 16)
        self.body = nn.Linear(16, 16)
        self.optimizer = torch.optim.Adam([*self.table.parameters(), *self.body.parameters()], lr=1e-3)

    def step(self, tokens):
        hidden = torch.tanh(self.body(self.table(tokens)))
        loss = (hidden.mean(1) - self.rank).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    def apply(self):
        self.optimizer.step()

    def tie_embeddings(self):
        """Averages the gradients of the tables that the first and the last stages share."""
        group = self.state.group("embedding")
        if group is not None:
            dist.all_reduce(self.table.weight.grad, group=group)
            self.table.weight.grad /= dist.get_world_size(group)

    def check_head(self):
        """The last two stages compare their logits' scale."""
        if self.rank >= STAGES - 2:
            scale = self.body.weight.detach().norm()
            dist.all_reduce(scale, group=self.state.group("head"))
            if self.rank == STAGES - 1 and scale > self.state.config["warn_above"]:
                print(f"scale of the head {scale.item():.2f}", flush=True)


def main():
    dist.init_process_group("gloo")
    config = {"tie_after": 40, "check_head_every": 25, "warn_above": 1e3}
    stage = Stage(ParallelState(config))
    generator = torch.Generator().manual_seed(stage.rank)
    for index in range(1, 1000):
        loss = stage.step(torch.randint(0, 50, (8, 12), generator=generator))
        if index % config["check_head_every"] == 0:
            stage.check_head()
        if index > config["tie_after"]:
            stage.tie_embeddings()
        stage.apply()
        dist.all_reduce(loss)
        time.sleep(0.03)
        if stage.rank == 0 and index % 10 == 0:
            print(f"iteration {index} loss {loss.item() / STAGES:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
