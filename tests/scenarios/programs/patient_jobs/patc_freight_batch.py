"""Freight rate regression. After a warm-up the quotes of the carrier are rated by an external batch service, then training goes on."""
import json
import multiprocessing as mp
import os
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def carrier_service(pipe, total=52):
    """The rating service of the carrier: a batch of quotes takes a while."""
    started = {}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def reply(self, payload):
            body = json.dumps(payload).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            started["b1"] = time.time()
            self.reply({"id": "b1", "status": "validating"})

        def do_GET(self):
            done = min(total, int((time.time() - started["b1"]) / 0.27))
            status = "completed" if done == total else "in_progress"
            self.reply({"status": status, "request_counts": {"completed": done, "total": total}})

    server = HTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


def rate_quotes(url, quotes):
    body = json.dumps(quotes).encode()
    request = urllib.request.Request(url + "/batches", data=body, method="POST")
    batch = json.load(urllib.request.urlopen(request, timeout=10))
    while batch["status"] != "completed":
        time.sleep(3)
        batch = json.load(urllib.request.urlopen(f"{url}/batches/b1", timeout=10))
    return batch["request_counts"]["completed"]


def steps(model, optimizer, count, scale):
    for _ in range(count):
        x = torch.randn(32, 12)
        time.sleep(0.04)  # read a page of shipments
        loss = (model(x).squeeze(1) - scale * x.sum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if rank == 0:
        ours, theirs = mp.get_context("fork").Pipe()
        mp.get_context("fork").Process(target=carrier_service, args=(theirs,), daemon=True).start()
        url = f"http://127.0.0.1:{ours.recv()}"
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps(model, optimizer, 60, 1.0)
    rated = torch.zeros(1)
    if rank == 0:
        rated[0] = rate_quotes(url, [{"lane": i} for i in range(52)])
    dist.broadcast(rated, src=0)
    loss = steps(model, optimizer, 60, rated.item() / 50)
    if rank == 0:
        print(f"rated {int(rated)} quotes, loss {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
