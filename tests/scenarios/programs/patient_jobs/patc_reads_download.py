"""Basecaller on reads from a sequencing centre. A download tool beside the job fetches the second run, rank 1 waits till it is there."""
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DOWNLOAD = r"""
import os, socket, sys, threading, time
target, size = sys.argv[1], int(sys.argv[2])
here, there = socket.socketpair()
def centre():
    left = size
    while left:
        part = min(left, 9000)
        there.sendall(bytes(range(250)) * (part // 250))
        left -= part
        time.sleep(0.3)
    there.close()
threading.Thread(target=centre, daemon=True).start()
with open(target + ".part", "wb", buffering=0) as out:
    while block := here.recv(4096):
        out.write(block)
os.rename(target + ".part", target)
"""


class Download:
    def __init__(self, target, size):
        self.target, self.size = target, size
        self.tool = subprocess.Popen([sys.executable, "-c", DOWNLOAD, target, str(size)])

    def share(self):
        try:
            return os.path.getsize(self.target + ".part") / self.size
        except FileNotFoundError:
            return float(os.path.exists(self.target))

    def wait(self, every=2.0):
        while self.share() < 1:
            time.sleep(every)
        return self.tool.wait()


def call_bases(model, optimizer, signal, steps):
    for step in range(steps):
        window = signal[(step * 200) % (len(signal) - 640):][:640].reshape(8, 80)
        time.sleep(0.04)
        loss = nn.functional.mse_loss(model(window), window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    size = 405_000
    model = DDP(nn.Sequential(nn.Linear(80, 24), nn.GELU(), nn.Linear(24, 80)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    call_bases(model, optimizer, torch.rand(4000), 70)
    signal = torch.zeros(size)
    if rank == 1:
        run = Download(os.path.join(tempfile.mkdtemp(), "run2.reads"), size)
        run.wait()
        with open(run.target, "rb") as source:
            signal = torch.frombuffer(bytearray(source.read()), dtype=torch.uint8).float() / 255
    dist.broadcast(signal, src=1)
    loss = call_bases(model, optimizer, signal, 90)
    if rank == 0:
        print("loss", loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
