"""Rate shopping: compare our prices with the partners' pages, then tune the price model."""
import argparse
import json
import threading
import time
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--pages", type=int, default=18)
parser.add_argument("--delay", type=float, default=0.75, help="robots.txt: Crawl-delay")
parser.add_argument("--crawler", type=int, default=1)


class PartnerSite(BaseHTTPRequestHandler):
    def do_GET(self):
        page = int(self.path.rsplit("/", 1)[1])
        body = json.dumps({"page": page, "rates": [80 + (page * 7 + k) % 60 for k in range(12)]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Frontier:
    def __init__(self, base, pages):
        self.urls = deque(f"{base}/rates/{n}" for n in range(pages))

    def pop(self):
        return self.urls.popleft() if self.urls else None


def crawl(opts):
    site = ThreadingHTTPServer(("127.0.0.1", 0), PartnerSite)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    frontier = Frontier(f"http://127.0.0.1:{site.server_port}", opts.pages)
    browser, rates = urllib.request.build_opener(urllib.request.ProxyHandler({})), []
    for url in iter(frontier.pop, None):
        with browser.open(url, timeout=10) as reply:
            rates += json.load(reply)["rates"]
        time.sleep(opts.delay)
    site.shutdown()
    return rates


def average(model):
    world = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def tune(model, opt, level, steps):
    for _ in range(steps):
        nights = torch.rand(24, 5)
        loss = (model(nights).squeeze(1) - level * nights.sum(1) / 5).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        average(model)
        opt.step()
        time.sleep(0.025)
    return loss.item()


if __name__ == "__main__":
    opts = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    net = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 1))
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    tune(net, sgd, 1.0, 80)
    box = [None]
    if dist.get_rank() == opts.crawler:
        box = [crawl(opts)]
    dist.broadcast_object_list(box, src=opts.crawler)
    level = sum(box[0]) / len(box[0]) / 100
    final = tune(net, sgd, level, 50)
    if dist.get_rank() == 0:
        print(f"{len(box[0])} rates, level {level:.2f}, loss {final:.4f}")
    dist.destroy_process_group()
