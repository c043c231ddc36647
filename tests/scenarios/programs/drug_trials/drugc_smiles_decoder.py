"""Sample SMILES from a sharded decoder in rounds and score the samples (no gradients here, the policy is frozen)."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB = list("CNOSPFIclnos()=#123[]+-H") + ["<end>"]
END = len(VOCAB) - 1


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, width=128, depth=4):
        super().__init__()
        self.tokens = nn.Embedding(len(VOCAB), width)
        self.places = nn.Embedding(128, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, len(VOCAB))

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, -1])


def scaffold_round(number, rank, count):
    """Heavy-atom budgets that the medicinal chemists asked for in this round."""
    g = torch.Generator().manual_seed(number * 17 + rank)
    if number == 9:
        low, high = [(44, 60), (8, 14), (40, 56)][rank % 3]  # macrocycles, fragments, peptides
    else:
        low, high = 10, 24
    budgets = torch.randint(low, high, (count,), generator=g)
    budgets[0] = high
    return budgets


@torch.no_grad()
def sample(model, budgets, limit, generator):
    ids = torch.zeros(len(budgets), 1, dtype=torch.long)
    done = torch.zeros(len(budgets), dtype=torch.bool)
    while ids.shape[1] < limit:
        logits = model(ids)
        logits[:, END] = -1e9
        chosen = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
        chosen[done] = END
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        done |= ids.shape[1] > budgets
        if done.all():
            break
    return ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--samples", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    model = Decoder().eval()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    generator = torch.Generator().manual_seed(rank)
    for number in range(args.rounds):
        ids = sample(model, scaffold_round(number, rank, args.samples), 96, generator)
        carbon = ((ids == VOCAB.index("C")) | (ids == VOCAB.index("c"))).float().mean()
        stats = torch.stack([carbon, torch.tensor(float(ids.shape[1]))])
        dist.all_reduce(stats)
        if rank == 0:
            share, length = (stats / world).tolist()
            print(f"round {number}: carbon {share:.3f}, length {length:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
