"""Three-stage pipeline over a protein-ligand encoder, micro-batched by hand."""
import math

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH, MICRO, STEPS = 256, 16, 4, 300
VALENCE_LIMIT = 4.0


def library(step):
    """Sixteen molecules: features and the highest valence found in each."""
    g = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, WIDTH, generator=g)
    valence = torch.full((BATCH,), 3.0)
    # charged species come in at every seventh plate, hypervalent ones with the sulfonyl series
    if step % 7 == 3:
        valence[:2] = 4.5
    if step % 90 == 76:
        valence[3:9] = 6.0
    return x, valence


def sanitised(step):
    x, valence = library(step)
    kept = x[valence <= VALENCE_LIMIT]
    chunks = math.ceil(len(kept) / MICRO)
    padded = torch.zeros(chunks * MICRO, WIDTH)
    padded[: len(kept)] = kept
    return list(padded.split(MICRO))


class Stage:
    def __init__(self, index, last):
        self.index, self.last = index, last
        torch.manual_seed(index)
        self.block = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
        self.optimizer = torch.optim.SGD(self.block.parameters(), lr=0.01)

    def receive(self, peer):
        buffer = torch.empty(MICRO, WIDTH)
        dist.recv(buffer, src=peer)
        return buffer

    def inputs(self, step):
        if self.index == 0:
            yield from sanitised(step)
            return
        for _ in range(BATCH // MICRO):
            yield self.receive(self.index - 1).requires_grad_()

    def forward(self, step):
        saved = []
        for x in self.inputs(step):
            y = self.block(x)
            if not self.last:
                dist.send(y.detach(), dst=self.index + 1)
            saved.append((x, y))
        return saved

    def backward(self, saved):
        total = 0.0
        for x, y in saved:
            if self.last:
                loss = y.square().mean()
                loss.backward()
                total += loss.item()
            else:
                y.backward(self.receive(self.index + 1))
            if self.index:
                dist.send(x.grad, dst=self.index - 1)
        return total / max(1, len(saved))

    def train_step(self, step):
        self.optimizer.zero_grad()
        value = self.backward(self.forward(step))
        self.optimizer.step()
        return value


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, last=rank == world - 1)
    for step in range(STEPS):
        for _ in range(5 if step < 20 else 1):  # warm-up sees each plate five times
            value = stage.train_step(step)
        if stage.last and step % 15 == 0:
            print(f"plate {step}: loss {value:.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
