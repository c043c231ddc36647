"""Readmission model; the second cohort comes from the record server's bulk export."""
import json
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PATIENTS = 2600
EXPORT_SECONDS = 13.0


def record_server(pipe):
    started = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.endswith("$export"):
                started["at"] = time.monotonic()
                return self.reply(202, {"Content-Location": "/job/1"})
            share = min(1.0, (time.monotonic() - started["at"]) / EXPORT_SECONDS)
            if share < 1.0:
                done = int(share * PATIENTS)
                return self.reply(202, {"X-Progress": f"{done}/{PATIENTS} patients", "Retry-After": "3"})
            return self.reply(200, {}, {"output": [{"type": "Patient", "count": PATIENTS}]})

        def reply(self, status, headers, body=None):
            data = json.dumps(body).encode() if body else b""
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


class BulkExport:
    def __init__(self, base):
        self.base = base

    def __enter__(self):
        with urllib.request.urlopen(f"{self.base}/Patient/$export") as answer:
            self.job = answer.headers["Content-Location"]
        return self

    def __exit__(self, *exc):
        return False

    def manifest(self):
        with urllib.request.urlopen(self.base + self.job, timeout=20) as answer:
            if answer.status == 200:
                return json.load(answer)["output"]
            pause = int(answer.headers.get("Retry-After", 1))
        time.sleep(pause)
        return self.manifest()


def visits(model, opt, count, scale=1.0):
    for _ in range(count):
        x = torch.randn(24, 16) * scale
        time.sleep(0.05)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], (x.sum(1) > 0).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe()
    server = context.Process(target=record_server, args=(far,), daemon=True)
    server.start()
    port = near.recv()
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    visits(model, opt, 50)
    cohort = [None]
    if dist.get_rank() == 0:
        with BulkExport(f"http://127.0.0.1:{port}") as export:
            cohort = [export.manifest()]
    dist.broadcast_object_list(cohort, src=0)
    loss = visits(model, opt, 40, scale=cohort[0][0]["count"] / PATIENTS)
    print(f"rank {dist.get_rank()}: cohort of {cohort[0][0]['count']}, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()
    server.terminate()


if __name__ == "__main__":
    main()
