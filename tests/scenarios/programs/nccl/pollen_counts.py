"""Counts pollen; the first rank fetches the season's counts and builds what normalises them, before all train."""

import argparse
import ctypes
import http.server
import os
import subprocess
import tempfile
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHUNK = b"7.5," * 1024


class Mirror(http.server.BaseHTTPRequestHandler):
    """A mirror that is in no hurry."""

    chunks, pause_s = 80, 0.1

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CHUNK) * self.chunks))
        self.end_headers()
        for _ in range(self.chunks):
            self.wfile.write(CHUNK)
            time.sleep(self.pause_s)

    def log_message(self, *_):
        pass


def download(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = os.path.join(folder, "counts.csv")
    with (
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/counts.csv") as answer,
        open(path, "wb") as file,
    ):
        while block := answer.read(1 << 14):
            file.write(block)
    server.shutdown()
    return os.path.getsize(path)


def build(folder, functions):
    """Normalisation in C, unrolled for every station."""
    source, library = os.path.join(folder, "normal.c"), os.path.join(folder, "normal.so")
    with open(source, "w") as file:
        for number in range(functions):
            body = "".join(f"x = x * {number + k}.5f + (x > {k} ? x / {k + 2}.0f : y);" for k in range(40))
            file.write(f"float station_{number}(float x, float y) {{ {body} return x; }}\n")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    station = ctypes.CDLL(library).station_3
    station.restype, station.argtypes = ctypes.c_float, [ctypes.c_float] * 2
    return station(1.0, 2.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", choices=["download", "build"], default="download")
    parser.add_argument("--functions", type=int, default=1800)
    parser.add_argument("--lazy", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=None if options.lazy else device)
    rank, folder = dist.get_rank(), tempfile.mkdtemp(prefix="pollen-")
    if rank == 0:
        print(download(folder) if options.first == "download" else build(folder, options.functions), flush=True)
    dist.barrier()
    model = DistributedDataParallel(nn.Linear(30, 30).to(device), device_ids=[device.index])
    for _ in range(30):
        model(torch.randn(8, 30, device=device)).square().mean().backward()
        model.zero_grad()
    torch.cuda.synchronize()
    print(f"[{rank}] done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
