"""Preference tuning: rollouts of a sharded policy, a reward of their style, and a policy gradient step."""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

VOCABULARY, WIDTH, CONTEXT = 48, 24, 40


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        attended = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)
        return x + self.out(attended[:, 0])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Prompts:
    """Prompts of one round; most rounds have prompts of one length."""

    def __init__(self, rank):
        self.rank, self.g = rank, torch.Generator().manual_seed(rank)

    def next(self, iteration):
        length = 8
        if iteration == 6:
            length = (8, 8, 21)[self.rank]
        return torch.randint(VOCABULARY, (4, length), generator=self.g)


@torch.no_grad()
def rollout(policy, prompts, temperature=1.0):
    ids = prompts
    while ids.shape[1] < CONTEXT:
        logits = policy(ids)[:, -1] / temperature
        token = torch.multinomial(logits.softmax(-1), 1)
        ids = torch.cat([ids, token], dim=1)
    return ids


def reward(ids, start):
    answer = ids[:, start:]
    return (answer % 2 == 0).float().mean(-1)


def update(policy, optimizer, ids, start, advantage):
    logp = policy(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    loss = -(logp[:, start - 1 :].mean(-1) * advantage).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    policy = Policy()
    for layer in policy.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    source = Prompts(rank)
    for iteration in range(30):
        prompts = source.next(iteration)
        ids = rollout(policy, prompts)
        rewards = reward(ids, prompts.shape[1])
        everyone = [None] * dist.get_world_size()
        dist.barrier()
        dist.all_gather_object(everyone, rewards.tolist())
        baseline = torch.tensor(sum(everyone, [])).mean()
        loss = update(policy, optimizer, ids, prompts.shape[1], rewards - baseline)
        time.sleep(0.1)
        if rank == 0:
            print(f"iteration {iteration}: reward {baseline:.3f} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
