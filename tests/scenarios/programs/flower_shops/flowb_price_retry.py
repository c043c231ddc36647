"""Competitor prices of lipsticks: one worker asks the price service, which limits its clients."""
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class PriceService(BaseHTTPRequestHandler):
    opens = None

    def do_GET(self):
        now = time.monotonic()
        if PriceService.opens is None:
            PriceService.opens = now + 12.0
        if now < PriceService.opens:
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps([round(4 + index * 0.25, 2) for index in range(16)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class PriceClient:
    def __init__(self, address, attempts=12):
        self.url, self.attempts = f"http://127.0.0.1:{address}/lipsticks", attempts

    def fetch(self):
        for attempt in range(self.attempts):
            try:
                with urllib.request.urlopen(self.url, timeout=10) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                pause = float(error.headers.get("Retry-After", 1))
                print(f"price service busy, attempt {attempt + 1}, next in {pause:.0f} s", flush=True)
                time.sleep(pause)
        raise RuntimeError("no prices")


def learn(weight, prices, steps):
    for _ in range(steps):
        time.sleep(0.03)
        choice = torch.softmax(-prices * weight, 0)
        gradient = (choice * prices).sum().reshape(1)
        dist.all_reduce(gradient)
        weight -= 0.001 * gradient / dist.get_world_size()
    return weight


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [None]
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), PriceService)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = [server.server_address[1]]
    dist.broadcast_object_list(port, src=0)
    weight = learn(torch.ones(1), torch.linspace(1, 5, 16), 80)
    prices = [PriceClient(port[0]).fetch() if rank == 1 else None]
    dist.broadcast_object_list(prices, src=1)
    weight = learn(weight, torch.tensor(prices[0]), 80)
    print(f"worker {rank}: sensitivity {weight.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
