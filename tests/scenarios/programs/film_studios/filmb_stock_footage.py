"""Trains a sky classifier on stock footage which one worker draws from the library's mirror beforehand."""
import http.server
import io
import threading
import time

import requests
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BASKETS = 7


class Mirror(http.server.BaseHTTPRequestHandler):
    """The mirror in the machine room: one basket per two seconds and client."""

    last = 0.0

    def do_GET(self):
        wait = Mirror.last + 2.0 - time.monotonic()
        if wait > 0:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        Mirror.last = time.monotonic()
        buffer = io.BytesIO()
        torch.save(torch.rand(40, 30, generator=torch.Generator().manual_seed(int(self.path[1:]))), buffer)
        self.send_response(200)
        self.send_header("Content-Length", str(buffer.tell()))
        self.end_headers()
        self.wfile.write(buffer.getvalue())

    def log_message(self, *args):
        pass


class Library:
    def __init__(self, url):
        self.url, self.session = url, requests.Session()
        self.session.trust_env = False  # the mirror is in the house

    def basket(self, number, attempts=12):
        for _ in range(attempts):
            answer = self.session.get(f"{self.url}/{number}", timeout=20)
            if answer.status_code != 429:
                answer.raise_for_status()
                return torch.load(io.BytesIO(answer.content))
            time.sleep(float(answer.headers["Retry-After"]))
        raise TimeoutError(f"basket {number}")


def draw_footage():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    library = Library(f"http://127.0.0.1:{server.server_port}")
    rows = [library.basket(n) for n in range(BASKETS)]
    server.shutdown()
    return torch.cat(rows)


def train(model, optimiser, rows, steps, label):
    for step in range(steps):
        time.sleep(0.03)
        batch = rows[torch.randint(len(rows), (16,))]
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch)[:, 0], (batch[:, 0] > 0.5).float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if dist.get_rank() == 0:
        print(f"{label}: {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DDP(nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    train(model, optimiser, torch.rand(200, 30), 60, "house footage")
    footage = [draw_footage() if dist.get_rank() == 1 else None]
    dist.broadcast_object_list(footage, src=1)
    train(model, optimiser, footage[0], 60, "stock footage")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
