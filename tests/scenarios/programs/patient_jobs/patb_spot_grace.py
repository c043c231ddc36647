"""Forklift detector on spot instances: a rank that gets a reclaim notice waits out the grace period, which may be withdrawn."""
import functools
import http.client
import http.server
import multiprocessing as mp
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

SPOT_RANK = 2
NOTICE_AT, WITHDRAWN_AT = 0.5, 14.0


class Metadata(http.server.BaseHTTPRequestHandler):
    first = None

    def do_GET(self):
        cls = type(self)
        cls.first = cls.first or time.monotonic()
        age = time.monotonic() - cls.first
        state = "reclaim" if NOTICE_AT <= age < WITHDRAWN_AT else "none"
        self.send_response(200)
        self.send_header("X-Spot-State", state)
        self.send_header("X-Spot-Seconds-Left", f"{max(0.0, WITHDRAWN_AT - age):.1f}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def notice(port):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    link.request("GET", "/spot")
    answer = link.getresponse()
    link.close()
    return answer.headers["X-Spot-State"], float(answer.headers["X-Spot-Seconds-Left"])


def holds_for_notice(every, port):
    """Decorator: before each `every`th call looks at the notice and stays until it is settled."""
    def wrap(step):
        calls = 0

        @functools.wraps(step)
        def guarded(*args):
            nonlocal calls
            calls += 1
            if port and calls > 20 and calls % every == 0:
                state, left = notice(port)
                while state == "reclaim":
                    time.sleep(min(left / 4 + 0.4, 3))
                    state, left = notice(port)
            return step(*args)
        return guarded
    return wrap


def main():
    port = None
    if int(os.environ["RANK"]) == SPOT_RANK:
        server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
        port = server.server_address[1]
        mp.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)

    @holds_for_notice(every=10, port=port)
    def step(images, boxes):
        loss = nn.functional.cross_entropy(model(images), boxes)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    for n in range(80):
        images = torch.randn(6, 1, 16, 16)
        loss = step(images, (images.mean((1, 2, 3)) > 0).long())
        time.sleep(0.08)
        if n % 20 == 19:
            print(f"rank {dist.get_rank()} step {n} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
