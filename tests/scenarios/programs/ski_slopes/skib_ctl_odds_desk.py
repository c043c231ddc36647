"""Football odds: each process fits a league; the fixtures come from the odds desk's HTTP service, which limits its clients."""
import json
import multiprocessing
import os
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LEAGUES = ["bundesliga", "serie a", "ligue 1"]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
QUOTA = {"serie a": 4}  # refusals that a busy league's clients get before they are served


class Desk(BaseHTTPRequestHandler):
    refused = {}

    def do_GET(self):
        league, matchday = self.path.strip("/").replace("%20", " ").split("/")
        seen = self.refused.setdefault(league, 0)
        if int(matchday) == 1 and seen < QUOTA.get(league, 0):
            self.refused[league] += 1
            self.send_response(429)
            self.send_header("Retry-After", "3")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps([[(i * 17 + int(matchday)) % 9 / 4 - 1, (i * 5) % 7 / 3 - 1] for i in range(306)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(pipe):
    server = HTTPServer(("127.0.0.1", 0), Desk)
    pipe.send(server.server_address[1])
    server.serve_forever()


def fetch(port, league, matchday, attempts=8):
    url = f"http://127.0.0.1:{port}/{league.replace(' ', '%20')}/{matchday}"
    for _ in range(attempts):
        try:
            with DIRECT.open(url, timeout=10) as answer:
                return torch.tensor(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            pause = float(error.headers["Retry-After"])
            print(f"{league}: desk is busy, again in {pause:.0f} s", flush=True)
            time.sleep(pause)
    raise RuntimeError(f"no odds for {league}")


def fit(model, optimizer, fixtures, steps=300):
    target = torch.sigmoid(fixtures[:, 0] - fixtures[:, 1])
    for _ in range(steps):
        noisy = fixtures + 0.1 * torch.randn_like(fixtures)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(noisy).squeeze(-1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    league = LEAGUES[int(os.environ["RANK"])]
    ours, theirs = multiprocessing.Pipe()
    desk = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
    desk.start()
    port = ours.recv()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for matchday in range(3):
        loss = fit(model, optimizer, fetch(port, league, matchday))
        print(f"{league} matchday {matchday}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    desk.terminate()


if __name__ == "__main__":
    main()
