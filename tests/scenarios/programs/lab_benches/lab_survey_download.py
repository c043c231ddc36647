"""Cross-matches sources with a catalogue, which the first rank downloads from the archive while the others wait."""

import http.server
import os
import socketserver
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
CHUNK, CHUNKS = 16_384, 60


class Archive(http.server.BaseHTTPRequestHandler):
    """A slow archive: about 100 kB a second."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(CHUNK * CHUNKS))
        self.end_headers()
        for number in range(CHUNKS):
            self.wfile.write(struct.pack("<f", number / CHUNKS) * (CHUNK // 4))
            time.sleep(0.16)

    def log_message(self, *_):
        pass


def serve():
    with socketserver.TCPServer(("127.0.0.1", 0), Archive) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def download(url, target, timeout=30):
    received = 0
    with urllib.request.urlopen(url, timeout=timeout) as answer, open(target, "wb") as file:
        while block := answer.read(32_768):
            file.write(block)
            received += len(block)
    print(f"{received} bytes from {url}", flush=True)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    catalogue = Path(tempfile.gettempdir(), f"catalogue-{os.environ['MASTER_PORT']}.bin")
    torch.manual_seed(0)
    model = DistributedDataParallel(Matcher())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dist.barrier()
    if rank == 0:
        archive = subprocess.Popen([sys.executable, __file__, "--archive"], stdout=subprocess.PIPE, text=True)
        try:
            download(f"http://127.0.0.1:{int(archive.stdout.readline())}/gaia.bin", catalogue)
        finally:
            archive.terminate()
            archive.wait()
    dist.barrier()
    magnitudes = torch.frombuffer(bytearray(catalogue.read_bytes()), dtype=torch.float32).view(-1, 8)
    generator = torch.Generator().manual_seed(rank)
    for step in range(80):
        rows = torch.randint(len(magnitudes), (16,), generator=generator)
        x = magnitudes[rows] + 0.1 * torch.randn(16, 8, generator=generator)
        loss = (model(x)[:, 0] - magnitudes[rows, 0]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    print(f"rank {rank}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    serve() if "--archive" in sys.argv else main()
