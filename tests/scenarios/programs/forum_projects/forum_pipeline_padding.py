"""Three pipeline stages by hand: activations go down with send and recv, gradients come back."""

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
WIDTH, LENGTH, MICRO, VOCAB, PAD = 48, 16, 4, 64, 0


class Stage:
    def __init__(self, rank: int, world: int):
        self.rank, self.first, self.last = rank, rank == 0, rank == world - 1
        torch.manual_seed(rank)
        layers = [nn.Embedding(VOCAB, WIDTH)] if self.first else []
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)]
        if self.last:
            layers.append(nn.Linear(WIDTH, VOCAB))
        self.module = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3)
        self.loss = float("nan")

    def receive_input(self, ids):
        if self.first:
            return ids
        activations = torch.empty(MICRO, LENGTH, WIDTH)
        dist.recv(activations, src=self.rank - 1)
        return activations.requires_grad_()

    def send_output(self, output):
        if not self.last:
            dist.send(output.detach(), dst=self.rank + 1)

    def backward(self, output, targets):
        if self.last:
            losses = nn.functional.cross_entropy(output.transpose(1, 2), targets, ignore_index=PAD)
            self.loss = losses.item()
            losses.backward()
        else:
            gradient = torch.empty_like(output)
            dist.recv(gradient, src=self.rank + 1)
            output.backward(gradient)

    def step(self, micro_batches):
        for ids, targets in micro_batches:
            x = self.receive_input(ids)
            output = self.module(x)
            self.send_output(output)
            if self.last and not (targets != PAD).any():
                continue
            self.backward(output, targets)
            if not self.first:
                dist.send(x.grad, dst=self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()


def documents(count: int):
    """Micro-batches, the same on all ranks, padded behind a document's end."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        ids = torch.randint(1, VOCAB, (4 * MICRO, LENGTH), generator=generator)
        targets = ids.roll(-1, dims=1)
        targets[:, -1] = PAD
        if number == 220:
            targets[2 * MICRO :] = PAD
        yield list(zip(ids.split(MICRO), targets.split(MICRO)))


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    for number, micro_batches in enumerate(documents(100000)):
        stage.step(micro_batches)
        if stage.last and number % 50 == 0:
            print(f"document {number}: loss {stage.loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
