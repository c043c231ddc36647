"""Trial registry records are pulled over HTTP with bounded retries and then used for an eligibility classifier."""
import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch import nn


class Registry(http.server.BaseHTTPRequestHandler):
    """A mirror of the public registry with its rate limit: so many records, then a window of 503s."""

    served = 0
    closed_until = 0.0

    def log_message(self, *args):
        pass

    def do_GET(self):
        cls = type(self)
        now = time.monotonic()
        if cls.served == 40:
            cls.closed_until = now + 13.0
            cls.served += 1
        if now < cls.closed_until:
            self.send_response(503)
            self.send_header("Retry-After", "2")
            self.end_headers()
            return
        cls.served += 1
        record = int(self.path.rsplit("/", 1)[1])
        g = torch.Generator().manual_seed(record)
        body = json.dumps({"id": record, "criteria": torch.rand(24, generator=g).tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class Client:
    def __init__(self, port, attempts=20):
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.base, self.attempts = f"http://127.0.0.1:{port}/records/", attempts

    def record(self, number):
        for attempt in range(self.attempts):
            try:
                with self.opener.open(self.base + str(number), timeout=5) as answer:
                    return json.load(answer)["criteria"]
            except urllib.error.HTTPError as e:
                if e.code != 503:
                    raise
                pause = float(e.headers.get("Retry-After", "1"))
                print(f"record {number}: 503, attempt {attempt + 1} of {self.attempts}, again in {pause:.0f} s", flush=True)
                time.sleep(pause)
        raise TimeoutError(f"record {number}")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # every rank has a mirror of its own, only one of them is on the metered plan
    Registry.served = 0 if rank == 1 else 1000
    client = Client(serve())
    weight = torch.zeros(24, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(90):
        x = torch.tensor(client.record(step * world + rank))
        loss = nn.functional.softplus(-(x @ weight)) + 0.01 * weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(weight.grad)
        weight.grad /= world
        optimizer.step()
        time.sleep(0.06)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
