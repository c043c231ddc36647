"""Query-intent model for a museum's collection search; the search index is rebuilt half way."""
import functools
import http.server
import json
import subprocess
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOTAL = 5400


class Search(http.server.BaseHTTPRequestHandler):
    started = None

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        Search.started = time.monotonic()
        self.answer({"task": "node1:4711"})

    def do_GET(self):
        done = min(TOTAL, int((time.monotonic() - Search.started) * 400))
        self.answer({"completed": done == TOTAL, "task": {"status": {"total": TOTAL, "created": done}}})

    def log_message(self, *a):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Search)
    print(server.server_port, flush=True)
    server.serve_forever()


def on_rank_zero(fn):
    """Run on rank 0, give the result to everybody."""
    @functools.wraps(fn)
    def wrapped(*args):
        result = [fn(*args) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(result, src=0)
        return result[0]
    return wrapped


def call(url, method="GET"):
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as r:
        return json.load(r)


def until_complete(base, task, interval=3.0):
    state = call(f"{base}/_tasks/{task}")
    if state["completed"]:
        return state["task"]["status"]["created"]
    time.sleep(interval)
    return until_complete(base, task, interval)


@on_rank_zero
def reindex():
    search = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    base = f"http://127.0.0.1:{int(search.stdout.readline())}"
    try:
        task = call(base + "/_reindex?wait_for_completion=false", "POST")["task"]
        return until_complete(base, task)
    finally:
        search.terminate()
        search.wait()


def fit(model, opt, n):
    for _ in range(n):
        time.sleep(0.06)
        ids = torch.randint(0, 500, (12, 7))
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 4)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.EmbeddingBag(500, 24), nn.Linear(24, 4)))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    fit(model, opt, 45)
    count = reindex()
    fit(model, opt, 45)
    print(f"rank {dist.get_rank()}: {count} objects in the new index", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
