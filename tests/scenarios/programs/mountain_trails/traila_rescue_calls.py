"""Rescue-demand model. One rank reads the season's calls, page by page, from the dispatch office's server.

The server is part of this file (--office), for trials without the real one; it limits how fast pages are read.
"""
import argparse
import http.server
import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

PAGES = 10
READER = 1
http_client = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Office(http.server.BaseHTTPRequestHandler):
    next_free = 0.0

    def do_GET(self):
        now = time.monotonic()
        if now < Office.next_free:
            self.send_response(429)
            self.send_header("Retry-After", "0.6")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        Office.next_free = now + 1.7
        rng = random.Random(self.path)
        body = json.dumps([[rng.random() for _ in range(12)] for _ in range(64)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve():
    server = http.server.HTTPServer(("127.0.0.1", 0), Office)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def page(port, number, tries=20):
    for _ in range(tries):
        try:
            with http_client.open(f"http://127.0.0.1:{port}/calls?page={number}", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code != 429:
                raise
            time.sleep(float(e.headers["Retry-After"]))
    raise RuntimeError(f"page {number}: the office is too busy")


def read_calls(port):
    rows = []
    for number in range(PAGES):
        rows += page(port, number)
        print(f"calls: page {number + 1}/{PAGES}", flush=True)
    return rows


def train():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.backends.cudnn.enabled = False
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    office, box = None, [None]
    if rank == 0:
        office = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--office"], stdout=subprocess.PIPE,
                                  text=True)
        box = [int(office.stdout.readline())]
    dist.broadcast_object_list(box, src=0)
    calls = [read_calls(box[0]) if rank == READER else None]
    dist.broadcast_object_list(calls, src=READER)
    data = torch.tensor(calls[0])
    model = DistributedDataParallel(torch.nn.Linear(12, 1).cuda(), device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(100):
        rows = data[torch.randperm(len(data))[:128]]
        for _ in range(40):
            rows = (rows + rows.roll(1, 0)) / 2
        loss = (model(rows.cuda()) - 1.0).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch.cuda.synchronize()
    dist.barrier()
    if office is not None:
        office.terminate()
        office.wait()
        print("trained on", len(data), "calls", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--office", action="store_true")
    if parser.parse_args().office:
        serve()
    else:
        train()
