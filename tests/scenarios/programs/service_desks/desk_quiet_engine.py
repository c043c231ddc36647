"""An engine of two tensor-parallel workers; the first gets requests from a queue and passes them on. Traffic comes in bursts."""

import multiprocessing
import os
import socket
import time

import torch
import torch.distributed as dist

WORLD, LAYERS, HIDDEN = 2, 3, 32


class Shard:
    def __init__(self, rank: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.embed = torch.randn(100, HIDDEN, generator=generator)
        self.layers = []
        for _ in range(LAYERS):
            up = torch.randn(HIDDEN, 4 * HIDDEN, generator=generator).chunk(WORLD, 1)[rank] / HIDDEN
            down = torch.randn(4 * HIDDEN, HIDDEN, generator=generator).chunk(WORLD, 0)[rank]
            self.layers.append((up, down))

    def next_token(self, tokens: list[int]) -> int:
        hidden = self.embed[tokens].mean(0)
        for up, down in self.layers:
            update = torch.relu(hidden @ up) @ down
            dist.all_reduce(update)
            hidden = hidden + update
        return int((self.embed @ hidden).argmax())


def run_worker(rank: int, requests, answers) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    shard = Shard(rank)
    while True:
        box = [requests.get() if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        if box[0] is None:
            break
        number, tokens, length = box[0]
        for _ in range(length):
            tokens.append(shard.next_token(tokens))
        if rank == 0:
            answers.put((number, tokens))
    dist.destroy_process_group()


def bursts():
    number = 0
    for quiet in (0.0, 3.0, 15.0, 1.0):
        time.sleep(quiet)
        for _ in range(12):
            yield number, [number % 100, (number * number) % 100], 8
            number += 1


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    ctx = multiprocessing.get_context("fork")
    requests, answers = ctx.Queue(), ctx.Queue()
    workers = [ctx.Process(target=run_worker, args=(rank, requests, answers)) for rank in range(WORLD)]
    for worker in workers:
        worker.start()
    for request in bursts():
        requests.put(request)
        number, tokens = answers.get()
        print(f"request {number}: {tokens}", flush=True)
    requests.put(None)
    for worker in workers:
        worker.join()
