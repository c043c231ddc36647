"""Raman spectra classifier; rank 2 owns the bench spectrometer behind a serial-to-TCP bridge."""
import multiprocessing as mp
import os
import socket
import struct
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

PIXELS = 128
STX, ETX = b"\x02", b"\x03"


def bridge(listener):
    """240-baud UART of the old detector head: one byte every 50 ms."""
    while True:
        client, _ = listener.accept()
        with client:
            if client.recv(5) != b"SPEC\r":
                continue
            frame = STX + b"".join(struct.pack(">H", 300 + (p * 37) % 211) for p in range(PIXELS)) + ETX
            for i in range(len(frame)):
                client.sendall(frame[i:i + 1])
                time.sleep(0.05)


class Spectrometer:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(5)

    def _bytes(self):
        while True:
            yield self.sock.recv(1)

    def spectrum(self):
        self.sock.sendall(b"SPEC\r")
        stream = self._bytes()
        while next(stream) != STX:
            pass
        body = b"".join(next(stream) for _ in range(2 * PIXELS))
        assert next(stream) == ETX
        return torch.tensor(struct.unpack(f">{PIXELS}H", body), dtype=torch.float32)

    def close(self):
        self.sock.close()


def fit(model, opt, dark, steps):
    for _ in range(steps):
        spectra = torch.rand(16, PIXELS) * 1000 - dark
        target = spectra.argmax(1) // 32
        loss = nn.functional.cross_entropy(model(spectra / 1000), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
    return loss.item()


def main():
    owner = os.environ["RANK"] == "2"
    if owner:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        mp.get_context("fork").Process(target=bridge, args=(listener,), daemon=True).start()
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(PIXELS, 32), nn.ReLU(), nn.Linear(32, 4)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    dark = torch.zeros(PIXELS)
    before = fit(model, opt, dark, 30)
    if owner:
        head = Spectrometer(port)
        dark = head.spectrum()
        head.close()
    dist.broadcast(dark, src=2)
    after = fit(model, opt, dark, 40)
    print(f"rank {dist.get_rank()} loss {before:.3f} -> {after:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
