"""Key cards are coded by three machines in a relay; the fraud detector is trained on the codes."""
import contextlib
import hashlib
import multiprocessing
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

fork = multiprocessing.get_context("fork")


def machine(left, right, desk, laps):
    """Takes a card from the left, codes one layer and hands it to the right."""
    while (card := left.recv()) is not None:
        layer, code = card
        for _ in range(2000):
            code = hashlib.blake2b(code, digest_size=32).digest()
        time.sleep(0.29)
        if layer + 1 == laps:
            desk.send(code)
            break
        right.send((layer + 1, code))
    with contextlib.suppress(OSError):
        right.send(None)


class Relay:
    def __init__(self, machines, laps):
        belts = [fork.Pipe(duplex=False) for _ in range(machines)]
        self.tray, desk = fork.Pipe(duplex=False)
        self.start = belts[0][1]
        self.crew = [
            fork.Process(target=machine, args=(belts[n][0], belts[(n + 1) % machines][1], desk, laps), daemon=True)
            for n in range(machines)]

    def __enter__(self):
        for member in self.crew:
            member.start()
        return self

    def __exit__(self, *_):
        for member in self.crew:
            member.join()

    def code(self, seed):
        self.start.send((0, seed))
        return self.tray.recv()


def cards(codes, count):
    picks = torch.randint(0, len(codes), (count, 6))
    return codes[picks], (picks.sum(1) % 2).float()


def drill(model, optimizer, codes, steps):
    for _ in range(steps):
        values, label = cards(codes, 20)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(values).squeeze(1), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    drill(model, optimizer, torch.rand(32), 75)
    codes = torch.zeros(32)
    if dist.get_rank() == 1:
        with Relay(machines=3, laps=44) as relay:
            codes = torch.tensor(list(relay.code(b"floor 4"))) / 255
    dist.broadcast(codes, src=1)
    drill(model, optimizer, codes, 45)
    if dist.get_rank() == 0:
        print(f"mean code {codes.mean():.3f}")
    dist.destroy_process_group()
