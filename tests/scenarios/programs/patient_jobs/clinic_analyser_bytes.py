"""Blood count flags; one rank takes the day's calibration frame from the haematology analyser."""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STX, ETX = 0x02, 0x03
CHANNELS = 16


def analyser(port):
    """Emulates the instrument: answers ENQ with one frame at its own slow pace."""
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.recv(1)
    body = "|".join(f"{100 + 7 * i % 31}" for i in range(CHANNELS)).encode()
    for byte in bytes([STX]) + body + bytes([ETX]):
        time.sleep(0.15)
        link.send(bytes([byte]))
    link.close()


class Frame:
    def __init__(self):
        self.payload, self.inside, self.complete = bytearray(), False, False

    def feed(self, value):
        if value == STX:
            self.inside = True
        elif value == ETX:
            self.complete = True
        elif self.inside:
            self.payload.append(value)

    def factors(self):
        return [int(part) / 100 for part in self.payload.decode().split("|")]


def calibrate():
    import subprocess
    device = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--analyser"],
                              stdout=subprocess.PIPE, text=True)
    link = socket.create_connection(("127.0.0.1", int(device.stdout.readline())))
    link.sendall(b"\x05")
    frame = Frame()
    while not frame.complete:
        frame.feed(link.recv(1)[0])
    device.wait()
    return frame.factors()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(CHANNELS, 24), nn.ReLU(), nn.Linear(24, 3)))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    factors = torch.ones(CHANNELS)

    for sample in range(95):
        if sample == 50:
            if rank == 1:
                factors = torch.tensor(calibrate())
            dist.broadcast(factors, src=1)
        counts = torch.rand(12, CHANNELS) * factors
        time.sleep(0.05)
        loss = nn.functional.cross_entropy(model(counts), counts[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank}: loss {loss.item():.3f}, mean factor {factors.mean():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--analyser" in sys.argv:
        analyser(0)
    else:
        main()
