"""Scribe-hand recognition; after the first phase the weights are deposited with the web archive at the allowed rate."""
import io
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

RECEIVER = """
import socket, hashlib
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
h = hashlib.md5(); n = 0
while True:
    b = c.recv(65536)
    if not b:
        break
    h.update(b); n += len(b)
c.sendall(f"{n} {h.hexdigest()}".encode())
c.close()
"""


class TokenBucket:
    """`rate` bytes a second, never more than `burst` at once."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.level, self.stamp = burst, time.monotonic()
        self.lock = threading.Condition()

    def take(self, n):
        with self.lock:
            while True:
                now = time.monotonic()
                self.level = min(self.burst, self.level + (now - self.stamp) * self.rate)
                self.stamp = now
                if self.level >= n:
                    self.level -= n
                    return
                self.lock.wait((n - self.level) / self.rate)


class Deposit:
    def __init__(self, rate):
        self.bucket = TokenBucket(rate, 8192)

    def __enter__(self):
        self.proc = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
        self.sock = socket.create_connection(("127.0.0.1", int(self.proc.stdout.readline())))
        return self

    def put(self, blob):
        for at in range(0, len(blob), 4096):
            part = blob[at:at + 4096]
            self.bucket.take(len(part))
            self.sock.sendall(part)
        self.sock.shutdown(socket.SHUT_WR)
        return self.sock.recv(200).decode()

    def __exit__(self, *exc):
        self.sock.close()
        self.proc.wait()


def train(model, opt, steps):
    for _ in range(steps):
        lines = torch.rand(6, 1, 16, 48)
        time.sleep(0.04)
        opt.zero_grad()
        nn.functional.cross_entropy(model(lines), torch.randint(0, 12, (6,))).backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 23, 32),
                              nn.ReLU(), nn.Linear(32, 12)))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    train(model, opt, 60)
    if rank == 0:
        buf = io.BytesIO()
        torch.save(model.module.state_dict(), buf)
        with Deposit(rate=len(buf.getvalue()) / 14) as deposit:
            print("deposited", deposit.put(buf.getvalue()), flush=True)
    dist.barrier()
    train(model, opt, 50)
    print(f"rank {rank} finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
