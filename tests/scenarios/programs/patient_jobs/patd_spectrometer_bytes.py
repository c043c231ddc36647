"""Sugar content from near infrared spectra; a fresh reference spectrum is taken between two rounds."""
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

INSTRUMENT = r'''
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
line, _ = server.accept()
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
command = b""
while not command.endswith(b"\n"):
    command += line.recv(64)
reading = ",".join("%.2f" % (0.5 + 0.4 * ((n * 5) % 16) / 16) for n in range(16)) + "\n"
for symbol in reading.encode():
    line.sendall(bytes([symbol]))
    time.sleep(0.17)
line.close()
'''


class Spectrometer:
    def __init__(self, port):
        self.line = socket.create_connection(("127.0.0.1", port))
        self.line.settimeout(5.0)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.line.close()

    def symbols(self):
        while True:
            symbol = self.line.recv(1)
            if symbol in (b"", b"\n"):
                return
            yield symbol

    def query(self, command):
        self.line.sendall(command.encode() + b"\n")
        return b"".join(self.symbols()).decode()


def reference():
    device = subprocess.Popen([sys.executable, "-c", INSTRUMENT], stdout=subprocess.PIPE, text=True)
    with Spectrometer(int(device.stdout.readline())) as spectrometer:
        answer = spectrometer.query("MEAS:SPEC?")
    device.wait()
    return torch.tensor([float(v) for v in answer.split(",")])


def train(model, optimizer, base, steps):
    for _ in range(steps):
        brix = torch.rand(10, 1)
        spectra = base + 0.1 * brix + 0.01 * torch.randn(10, 16)
        loss = nn.functional.l1_loss(model(spectra), brix)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    base = torch.full((16,), 0.7)
    losses = [train(model, optimizer, base, 29)]
    if rank == 2:
        base = reference()
    dist.broadcast(base, src=2)
    losses.append(train(model, optimizer, base, 29))
    print(f"rank {rank}: " + ", ".join(f"{v:.4f}" for v in losses), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
