"""Pretraining on shards that a process beside the job tokenises and announces in a store."""

import json
import multiprocessing
import os
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

LONG = timedelta(hours=2)


def write_corpus(folder: Path) -> None:
    for number in range(40):
        lines = [{"text": f"line {line} of document {number}"} for line in range(20)]
        if number == 11:
            lines[7] = {"content": "line 7 of document 11"}
        (folder / f"{number:03}.jsonl").write_text("\n".join(map(json.dumps, lines)))


def publish(port: int, folder: Path) -> None:
    store = dist.TCPStore("127.0.0.1", port, timeout=LONG)
    for number, path in enumerate(sorted(folder.glob("*.jsonl"))):
        documents = [json.loads(line) for line in path.read_text().splitlines()]
        tokens = [[ord(character) % 64 for character in document["text"]] for document in documents]
        shard = path.with_suffix(".pt")
        torch.save(torch.tensor([row[:16] for row in tokens]), shard)
        store.set(f"shards/{number}", str(shard))
        time.sleep(0.35)


class Shards:
    """The first rank asks the store for the next shard and tells the others."""

    def __init__(self, rank: int, port: int) -> None:
        self.store = dist.TCPStore("127.0.0.1", port, timeout=LONG) if rank == 0 else None

    def __getitem__(self, number: int) -> torch.Tensor:
        name = [self.store.get(f"shards/{number}").decode()] if self.store else [None]
        dist.broadcast_object_list(name, src=0)
        return torch.load(name[0])


def descend(model, lr: float) -> None:
    """A step with the gradients of all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-lr)
        parameter.grad = None


def train(rank: int, world: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=LONG)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64))
    shards = Shards(rank, port)
    for number in range(40):
        tokens = shards[number][rank::world]
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        descend(model, lr=0.1)
        if rank == 0:
            print(f"shard {number}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    folder, port, ctx = Path(tempfile.mkdtemp()), free_port(), multiprocessing.get_context("fork")
    write_corpus(folder)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    publisher = ctx.Process(target=publish, args=(port, folder), name="publisher")
    trainers = [ctx.Process(target=train, args=(rank, 2, port)) for rank in range(2)]
    for process in (publisher, *trainers):
        process.start()
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=LONG)
    for process in trainers:
        process.join()
