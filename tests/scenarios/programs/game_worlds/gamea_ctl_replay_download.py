"""Learns from a replay archive that one host fetches from the archive server during training; the server is not the fastest."""
import http.server
import io
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FETCHER = 1
CHUNK, PAUSE = 40 << 10, 0.1


class Archive(http.server.BaseHTTPRequestHandler):
    """Serves one archive of replays, at the rate that the hoster allows."""

    def do_GET(self):
        buffer = io.BytesIO()
        torch.save(torch.randn(130, 48, 256), buffer)
        body = buffer.getvalue()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), CHUNK):
            self.wfile.write(body[at : at + CHUNK])
            time.sleep(PAUSE)

    def log_message(self, *args):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def download(url):
    parts, got = [], 0
    with urllib.request.urlopen(url, timeout=60) as answer:
        total = int(answer.headers["Content-Length"])
        while part := answer.read(CHUNK):
            parts.append(part)
            got += len(part)
            if len(parts) % 20 == 0:
                print(f"replays: {got / 2**20:.1f} of {total / 2**20:.1f} MiB", flush=True)
    return torch.load(io.BytesIO(b"".join(parts)))


def fit(model, optim, data, steps):
    for step in range(steps):
        x = data[step % len(data)]
        loss = (model(x) - x.roll(1, 1)).square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 40 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [serve() if rank == 0 else None]
    dist.broadcast_object_list(port, src=0)
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit(model, optim, torch.randn(16, 48, 256), steps=500)
    replays = torch.empty(130, 48, 256)
    if rank == FETCHER:
        replays.copy_(download(f"http://127.0.0.1:{port[0]}/season-12"))
    dist.broadcast(replays, src=FETCHER)
    fit(model, optim, replays, steps=900)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("finished", flush=True)


if __name__ == "__main__":
    main()
