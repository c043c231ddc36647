"""Fits surge on top of the astronomical tide. The tide service allows few requests a minute and says so."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist

BURST, PAUSE = 4, 13.0
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TideService(http.server.BaseHTTPRequestHandler):
    """Stands in for the hydrographic office."""

    served, closed_until = 0, 0.0

    def do_GET(self):
        cls = type(self)
        now = time.monotonic()
        if now < cls.closed_until:
            self.send_response(429)
            self.send_header("Retry-After", "3")
            self.end_headers()
            return
        cls.served += 1
        if cls.served == BURST:
            cls.closed_until = now + PAUSE
        day = int(self.path.rsplit("/", 1)[1])
        body = json.dumps([((day * 31 + i * 11) % 47) / 47 for i in range(48)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def fetch(url, attempts=9):
    delay = 1.0
    for attempt in range(attempts):
        try:
            with OPENER.open(url, timeout=5) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 429 or attempt == attempts - 1:
                raise
            print(f"429, attempt {attempt + 1}, next in {delay:.0f} s", flush=True)
            time.sleep(delay)
            delay = min(delay * 1.6, 4.0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TideService)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}/tide"
    weight = torch.zeros(48)
    for day in range(11):
        tide = torch.zeros(48)
        if rank == 1:
            tide = torch.tensor(fetch(f"{base}/{day}"))
        dist.broadcast(tide, src=1)
        for _ in range(12):
            surge = tide + 0.1 * torch.randn(48)
            gradient = (weight - surge) / 24
            dist.all_reduce(gradient)
            weight -= gradient / dist.get_world_size()
            time.sleep(0.06)
        if rank == 0:
            print(f"day {day}: {(weight - tide).abs().mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
