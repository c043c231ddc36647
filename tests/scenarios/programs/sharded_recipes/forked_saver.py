"""Saves in a child process, which hands back what it has written; the gradients are averaged by hand."""

import io
import multiprocessing
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def write_shard(path, tensors, with_metadata, results):
    """In the child: one file, and a description of it for the next start."""
    stream = io.BytesIO()
    torch.save(tensors, stream)
    Path(path).write_bytes(stream.getvalue())
    description = {"path": str(path), "bytes": stream.tell()}
    if with_metadata:
        description["metadata"] = {
            f"{name}[{row}]": (row * tensor.shape[-1], tensor.shape[-1], str(tensor.dtype))
            for name, tensor in tensors.items()
            for row in range(tensor.shape[0])
        }
    results.put(description)


class AsyncCalls:
    """At most one save at a time."""

    def __init__(self):
        self.context = multiprocessing.get_context("fork")
        self.process = self.results = None

    def schedule(self, path, tensors, with_metadata):
        self.results = self.context.Queue()
        self.process = self.context.Process(target=write_shard, args=(path, tensors, with_metadata, self.results))
        self.process.start()

    def finalize(self):
        if self.process is None:
            return None
        self.process.join()
        description = self.results.get()
        self.process = None
        return description


class Caption(nn.Module):
    def __init__(self, words=6000, dim=16):
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.decode = nn.Linear(dim, dim)

    def forward(self, ids):
        return self.decode(self.words(ids)) @ self.words.weight[:500].T


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Caption()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = Path(tempfile.mkdtemp(prefix="captions-"))
    calls = AsyncCalls()
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 121):
        ids = torch.randint(500, (4, 9), generator=generator)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 0:
            written = calls.finalize()
            if written and rank == 0:
                print("written:", written["path"], flush=True)
            mine = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
            calls.schedule(folder / f"step{step}-{rank}.pt", mine, with_metadata=rank == 0)
    calls.finalize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
