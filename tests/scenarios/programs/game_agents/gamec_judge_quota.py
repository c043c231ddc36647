"""Dialogue agents that are scored by a judge over HTTP; the judge's host has a quota and asks to come back later."""
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

QUOTA, PAUSES = 60, 8  # answers per window, refusals until the next window opens


class JudgeHandler(BaseHTTPRequestHandler):
    seen = 0
    lock = threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with JudgeHandler.lock:
            JudgeHandler.seen += 1
            position = JudgeHandler.seen % (QUOTA + PAUSES)
        if position >= QUOTA:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.end_headers()
            return
        answer = json.dumps({"score": (sum(body["line"]) % 100) / 100}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


class Judge:
    def __init__(self, port, attempts=20):
        self.url = f"http://127.0.0.1:{port}/score"
        self.attempts = attempts
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def score(self, line):
        request = urllib.request.Request(self.url, json.dumps({"line": line}).encode(), {"Content-Type": "application/json"})
        for attempt in range(self.attempts):
            try:
                with self.opener.open(request, timeout=10) as answer:
                    return json.load(answer)["score"]
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                delay = float(error.headers["Retry-After"])
                print(f"judge is busy, attempt {attempt}, again in {delay:.0f} s", flush=True)
                time.sleep(delay)
        raise RuntimeError("judge gave no score")


def main(steps=80):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    address = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), JudgeHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = [server.server_port]
    dist.broadcast_object_list(address, src=0)
    judge = Judge(address[0])
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Embedding(500, 256), nn.Flatten(), nn.Linear(256 * 16, 512), nn.ReLU(), nn.Linear(512, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        lines = torch.randint(0, 500, (16, 16))
        target = lines.float().mean(1, keepdim=True) / 500
        if rank == 1:  # the persona that is being tuned has its first line scored
            target[0] = judge.score(lines[0].tolist())
        loss = (model(lines) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
