"""Generates small molecules (SMILES) with a recurrent network whose weights are spread over the ranks."""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
TOKENS = ["<end>", "C", "c", "N", "O", "(", ")", "=", "1", "2", "F", "S"]
END, WIDTH = 0, 24
SCAFFOLDS = ["c1ccccc1", "C1CCNC1C(=O)Nc2ccccc2", "CC(C)O", "C1CCOCC1"]


class Collected(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


class Spread(nn.Module):
    """A matrix of which each rank keeps some rows."""

    def __init__(self, rows, columns):
        super().__init__()
        whole = torch.randn(rows, columns) / columns**0.5
        self.part = nn.Parameter(whole.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self):
        return Collected.apply(self.part)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Spread(len(TOKENS), WIDTH)
        self.recur = Spread(WIDTH, WIDTH)
        self.out = Spread(len(TOKENS), WIDTH)
        self.bias = nn.Parameter(torch.tensor([-4.0] + [0.0] * (len(TOKENS) - 1)), requires_grad=False)

    def forward(self, tokens):
        embed, recur, out = self.embed(), self.recur(), self.out()
        h = torch.zeros(WIDTH)
        logits = []
        for token in tokens:
            h = torch.tanh(embed[token] + recur @ h)
            logits.append(out @ h + self.bias)
        return torch.stack(logits)

    @torch.no_grad()
    def complete(self, scaffold, longest=48):
        """Adds atoms to a scaffold until the molecule ends, or has got too long to be made."""
        tokens = encode(scaffold)
        while len(tokens) < longest:
            following = self(tokens)[-1].argmax().item()
            if following == END:
                break
            tokens.append(following)
        return "".join(TOKENS[t] for t in tokens)


def encode(text):
    return [TOKENS.index(character) for character in text]


def molecules(rank, count):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(count):
        time.sleep(0.02)
        yield torch.randint(1, len(TOKENS), (12,), generator=generator).tolist()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Generator()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02)
    for epoch in range(6):
        for tokens in molecules(rank, 25):
            loss = F.cross_entropy(model(tokens)[:-1], torch.tensor(tokens[1:]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}, rank {rank}: {loss.item():.3f}", flush=True)
        if epoch >= 2:
            molecule = model.complete(SCAFFOLDS[rank])
            for turn in range(world):
                if turn == rank:
                    print(f"  {rank}: {molecule}", flush=True)
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
