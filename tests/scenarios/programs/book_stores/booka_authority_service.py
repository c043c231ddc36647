"""Name-authority matching: rank 2 asks the authority file's service, which is busy at times, and shares the answer."""
import http.server
import json
import logging
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("authority")


class Authority(http.server.BaseHTTPRequestHandler):
    """Local stand-in for the national library's endpoint."""

    busy = 5

    def do_GET(self):
        if Authority.busy:
            Authority.busy -= 1
            self.send_response(503)
            self.send_header("Retry-After", "2")
            self.end_headers()
            return
        body = json.dumps({"names": [f"gnd:{n:06d}" for n in range(128)]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Client:
    def __init__(self, url, attempts=8):
        self.url, self.attempts = url, attempts

    def names(self):
        for attempt in range(1, self.attempts + 1):
            try:
                with urllib.request.urlopen(self.url, timeout=20) as answer:
                    return json.load(answer)["names"]
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                pause = float(error.headers["Retry-After"]) + 0.25 * attempt
                log.warning("attempt %d of %d: busy, again in %.2f s", attempt, self.attempts, pause)
                time.sleep(pause)
        raise RuntimeError("the authority service does not answer")


def rounds(model, optimizer, count):
    for _ in range(count):
        x = torch.linalg.qr(torch.randn(240, 240))[0][:32, :24]
        loss = (model(x).squeeze(1) - x.norm(dim=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log.info("[%d] %.4f", rank, rounds(model, optimizer, 250))
    names = [None]
    if rank == 2:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Authority)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        names = [Client(f"http://127.0.0.1:{server.server_address[1]}/names").names()]
        server.shutdown()
    dist.broadcast_object_list(names, src=2)
    log.info("[%d] %d names, %.4f", rank, len(names[0]), rounds(model, optimizer, 250))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
