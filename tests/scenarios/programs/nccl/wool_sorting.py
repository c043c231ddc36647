"""Sorts wool by its fineness. Each rank reads its bales from a press as they come, through the press's file."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn

FLEECE = 64


class Press:
    def __init__(self, rank):
        self.folder = tempfile.mkdtemp(prefix=f"press-{rank}-")

    def bale(self, number):
        return torch.randn(16, FLEECE, generator=torch.Generator().manual_seed(number))

    def next_lot(self):
        lot = os.path.join(self.folder, "lot")
        os.mkfifo(lot)
        with open(lot) as weights:  # written by the press once it is done
            return weights.read()


class Sorter:
    def __init__(self, device, ask):
        self.device, self.ask = device, ask
        self.model = nn.Linear(FLEECE, 4).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.worst = torch.zeros((), device=device)
        self.samples = torch.randn(1 << 17)

    def learn(self, bale):
        self.loss = self.model(bale.to(self.device, non_blocking=True)).square().mean()
        self.loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def check(self):
        if self.ask == "nan":
            if torch.isnan(self.loss):
                print("the loss is no number", flush=True)
        elif self.ask == "any":
            self.broken = [name for name, p in self.model.named_parameters() if p.isinf().any()]
        elif self.ask == "equal":
            self.stuck = torch.equal(self.loss, self.worst)
        elif self.ask == "upload":
            self.samples.cuda()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ask", choices=["nan", "any", "equal", "upload"], default="nan")
    parser.add_argument("--press", type=int, default=-1, help="the rank whose press gives a new lot")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    press, sorter = Press(dist.get_rank()), Sorter(device, options.ask)
    for number in range(80):
        if number == 30 and dist.get_rank() == options.press:
            press.next_lot()
        sorter.learn(press.bale(number))
        sorter.check()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
