"""Pipeline of three stages over micro-batches: all forwards, then all backwards."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
WIDTH, MICRO = 20, 4


class Loader:
    """Only the first stage reads the samples; the last one reads the targets."""

    def __init__(self, rows, batch_size):
        self.rows = rows
        self.batch_size = batch_size

    def sizes(self):
        for start in range(0, self.rows, self.batch_size):
            yield min(self.batch_size, self.rows - start)


class Stage:
    def __init__(self, index, count):
        self.index = index
        self.previous = index - 1 if index > 0 else None
        self.next = index + 1 if index < count - 1 else None
        torch.manual_seed(index)
        self.module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05)

    def read(self, rows):
        return list(torch.randn(rows, WIDTH).split(MICRO))

    def forward_all(self, rows):
        if self.previous is None:
            pieces = [piece for piece in self.read(rows) if len(piece) == MICRO]
            inputs = [piece.requires_grad_() for piece in pieces]
        else:
            inputs = self.receive_all(-(-rows // MICRO))
        kept = []
        for x in inputs:
            y = self.module(x)
            if self.next is not None:
                dist.send(y.detach(), dst=self.next)
            kept.append((x, y))
        return kept

    def receive_all(self, count):
        """Not yet computed on, so that the stage before can go on."""
        inputs = []
        for _ in range(count):
            x = torch.empty(MICRO, WIDTH)
            dist.recv(x, src=self.previous)
            inputs.append(x.requires_grad_())
        return inputs

    def backward_all(self, kept):
        total = 0.0
        for x, y in reversed(kept):
            if self.next is None:
                loss = (y - 1.0).square().mean()
                loss.backward()
                total += loss.item()
            else:
                gradient = torch.empty_like(y)
                dist.recv(gradient, src=self.next)
                y.backward(gradient)
            if self.previous is not None:
                dist.send(x.grad, dst=self.previous)
        return total

    def step(self, rows):
        self.optimizer.zero_grad()
        kept = self.forward_all(rows)
        total = self.backward_all(kept)
        self.optimizer.step()
        return total / max(1, len(kept))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, world)
    loader = Loader(rows=16 * 40 + 10, batch_size=16)
    for epoch in range(3):
        for index, rows in enumerate(loader.sizes()):
            loss = stage.step(rows)
            time.sleep(0.03)
            if stage.next is None and index % 10 == 0:
                print(f"epoch {epoch} batch {index} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
