"""Fares come over an old reservation terminal, character by character, and set the target of the fare model."""
import functools
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STX, ETX = "\x02", "\x03"
SCREEN = "LIS112/OPO098/FAO131/FNC144/PDL120"
TERMINAL = r"""
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    for character in sys.argv[2]:
        line.sendall(character.encode())
        time.sleep(0.37)
    line.sendall(b"\x03")
"""


class Line:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.terminal = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, str(self.listener.getsockname()[1]), STX + SCREEN])
        self.peer, _ = self.listener.accept()

    def key(self):
        return self.peer.recv(1).decode()

    def word(self, end):
        """Reads up to the end mark."""
        character = self.key()
        return ("", character) if character in (end, ETX) else self._join(character, end)

    def _join(self, character, end):
        rest, mark = self.word(end)
        return character + rest, mark

    def screen(self):
        self.word(STX)
        mark = None
        while mark != ETX:
            word, mark = self.word("/")
            yield word[:3], int(word[3:])

    def close(self):
        self.peer.close()
        self.listener.close()
        return self.terminal.wait()


@functools.lru_cache(maxsize=1)
def fares():
    line = Line()
    table = dict(line.screen())
    line.close()
    return table


def practise(model, optimizer, fare, steps):
    for _ in range(steps):
        stay = torch.rand(18, 7)
        loss = nn.functional.mse_loss(model(stay), fare * stay.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return float(loss)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.ELU(), nn.Linear(14, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    practise(model, optimizer, 1.0, 75)
    fare = torch.zeros(1)
    if rank == 2:
        fare += sum(fares().values()) / len(fares()) / 100
    dist.broadcast(fare, src=2)
    loss = practise(model, optimizer, fare.item(), 45)
    if rank == 0:
        print(f"fare level {fare.item():.3f}, loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
