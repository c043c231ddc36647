"""Fetches the weather files of three stations over a thin line, and learns the picking date from them."""

import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist

# kilobytes a second that a station's line gives
LINES = {"plateau": 40, "valley": 24, "lake": 11}
KILOBYTES = 160


class Station(BaseHTTPRequestHandler):
    """Gives out a season's file; the pace is that of the radio link."""

    def do_GET(self):
        name, season = self.path.strip("/").split("/")
        amount = 4 if season == "test" else KILOBYTES
        self.send_response(200)
        self.send_header("Content-Length", str(amount * 1024))
        self.end_headers()
        for kilobyte in range(amount):
            self.wfile.write(bytes((kilobyte * 31 + i * 7) % 251 for i in range(1024)))
            self.wfile.flush()
            time.sleep(1 / LINES[name])

    def log_message(self, *args):
        pass


class Fetcher:
    def __init__(self, name):
        self.name = name
        server = ThreadingHTTPServer(("127.0.0.1", 0), Station)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_address[1]}/{name}"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def fetch(self, season):
        data, began = bytearray(), time.monotonic()
        with self.opener.open(f"{self.address}/{season}", timeout=30) as answer:
            while block := answer.read(2048):
                data += block
        print(f"{self.name} {season}: {len(data)} bytes in {time.monotonic() - began:.1f} s", flush=True)
        return torch.frombuffer(data, dtype=torch.uint8).float().view(-1, 16) / 251


def learn(table, weights, steps):
    for step in range(steps):
        rows = torch.arange(step * 32, step * 32 + 32) % len(table)
        x, y = table[rows, 1:], table[rows, :1]
        slope = x.t() @ (x @ weights - y) / 32
        dist.all_reduce(slope)
        weights = weights - 0.05 * slope / dist.get_world_size()
        time.sleep(0.02)
    return weights


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    fetcher = Fetcher(list(LINES)[dist.get_rank()])
    weights = torch.zeros(15, 1)
    for season in ("test", "2024"):
        weights = learn(fetcher.fetch(season), weights, steps=120)
    if dist.get_rank() == 0:
        print(f"weights {float(weights.norm()):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
