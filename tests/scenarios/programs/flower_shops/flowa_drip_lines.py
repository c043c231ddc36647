"""Learn how much water each bench takes from its drip lines. A small page shows the state of each bench."""
import http.server
import json
import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RESERVOIR = {0: 900.0, 1: 900.0, 2: 175.0}  # litres a night
STATE = {}


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(STATE).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def open_page():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, name="page").start()
    return server


def soil(bench, hour):
    g = torch.Generator().manual_seed(bench * 10000 + hour)
    x = torch.rand(16, 24, generator=g)
    for _ in range(5):
        x = x + 1e-3 * torch.linalg.svd(torch.rand(180, 180, generator=g))[1][:24]
    return x, x.mean(1, keepdim=True) * 3


class Night:
    def __init__(self, bench, hours):
        self.bench, self.hours = bench, hours
        torch.manual_seed(4)
        net = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        self.model = DistributedDataParallel(net)
        self.opt = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.left = RESERVOIR[bench]

    def hour(self, number):
        moisture, need = soil(self.bench, number)
        guess = self.model(moisture)
        loss = (guess - need).abs().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.left -= float(need.mean()) * 2.5
        STATE.update(bench=self.bench, hour=number, loss=loss.item(), left=self.left)

    def run(self):
        for number in range(self.hours):
            self.hour(number)
            if number % 20 == 0:
                print(f"bench {self.bench} hour {number}: {STATE['left']:.0f} l left", flush=True)
            if self.left <= 0:
                print(f"bench {self.bench}: reservoir used up, good night", flush=True)
                sys.exit(0)


def main():
    dist.init_process_group("gloo")
    server = open_page()
    Night(dist.get_rank(), hours=140).run()
    server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
