"""Language model for cue sheets ("LX 14 go, fade 3 s, blue wash to 40"): a small next-token model over console syntax."""
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VERBS = ["go", "fade", "bump", "hold", "follow", "block", "mark"]
FIXTURES = ["wash", "spot", "cyc", "special", "strobe", "foots"]
VOCAB = {word: n for n, word in enumerate(["<pad>", "LX", "to", "s"] + VERBS + FIXTURES + [str(n) for n in range(101)])}


def write_cue(pen):
    level = pen.randrange(101)
    return f"LX {pen.randrange(99)} {pen.choice(VERBS)} {pen.choice(FIXTURES)} to {level} {pen.randrange(9)} s"


def write_sheet(pen, cues):
    return [write_cue(pen) for _ in range(cues)]


class Tokenizer:
    def __init__(self, width):
        self.width = width

    def __call__(self, sheet):
        rows = []
        for cue in sheet:
            ids = [VOCAB[word] for word in cue.split()]
            rows.append(ids + [0] * (self.width - len(ids)))
        return torch.tensor(rows)


class CueModel(nn.Module):
    def __init__(self, width=8, dim=48):
        super().__init__()
        self.table = nn.Parameter(torch.randn(len(VOCAB), dim) * 0.02)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, len(VOCAB))

    def forward(self, onehot):
        return self.out(torch.tanh(self.mix(onehot @ self.table)))


class CueTrainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.model = CueModel().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.tokenize = Tokenizer(width=8)

    def loss_of(self, sheet):
        tokens = self.tokenize(sheet)
        onehot = F.one_hot(tokens, len(VOCAB)).float().cuda()
        logits = self.model(onehot[:, :-1])
        loss = (logits - onehot[:, 1:]).square().mean()
        self.metrics(torch.tensor([len(sheet), int((tokens > 0).sum())]).cuda())
        return loss

    def metrics(self, counts):
        gathered = torch.empty(self.world * 2, dtype=counts.dtype, device="cuda")
        dist.all_gather_into_tensor(gathered, counts)
        self.last = gathered.cpu().view(self.world, 2).sum(0).tolist()

    def step(self, sheet):
        error = None
        try:
            loss = self.loss_of(sheet)
        except KeyError as e:
            error = RuntimeError(f"word {e} is not in the console's syntax")
        bad = torch.tensor(float(error is not None), device="cuda")
        dist.all_reduce(bad)
        if bad.item() > 0:
            self.optimizer.zero_grad()
            return None
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.last


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    trainer = CueTrainer(rank, world)
    pen = random.Random(40 + rank)
    for act in range(120):
        sheet = pen.sample(write_sheet(pen, 4000), 64)  # one evening out of a season
        if act == 80 + 3 * ((rank + 1) % world):
            sheet[pen.randrange(64)] = "LX 40.5 go spot to 70 2 s"  # point cues came in with the second edition
        seen = trainer.step(sheet)
        if act % 20 == 0 and rank == 0:
            print("act", act, "cues, words", seen, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
