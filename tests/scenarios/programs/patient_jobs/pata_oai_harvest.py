"""Subject-heading classifier for a union catalogue; new records are harvested over OAI-PMH between epochs."""
import http.server
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

TITLES = ["atlas of rivers", "psalter with gloss", "letters to a printer", "map of the harbour", "parish register",
          "grammar of frisian", "herbal in folio", "minutes of the guild"]


class Repository(http.server.BaseHTTPRequestHandler):
    """A small data provider: every other request is answered with 503 and Retry-After, as busy repositories do."""
    asked = {}

    def do_GET(self):
        page = int(re.search(r"resumptionToken=(\d+)", self.path).group(1))
        self.asked[page] = self.asked.get(page, 0) + 1
        if self.asked[page] == 1:
            self.send_response(503)
            self.send_header("Retry-After", str(1 + page % 3))
            self.end_headers()
            return
        rows = "".join(f"<title>{t} vol. {page}</title>" for t in TITLES)
        token = f"<resumptionToken>{page + 1}</resumptionToken>" if page < 6 else ""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"<ListRecords>{rows}{token}</ListRecords>".encode())

    def log_message(self, *a):
        pass


def serve():
    server = http.server.HTTPServer(("127.0.0.1", 0), Repository)
    print(server.server_port, flush=True)
    server.serve_forever()


def fetch(url):
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as r:
                return r.read().decode()
        except urllib.error.HTTPError as e:
            if e.code != 503:
                raise
            time.sleep(int(e.headers["Retry-After"]))


def list_records(base):
    token = "0"
    while token:
        xml = fetch(f"{base}?verb=ListRecords&resumptionToken={token}")
        yield from re.findall("<title>(.*?)</title>", xml)
        nxt = re.search("<resumptionToken>(.*?)</resumptionToken>", xml)
        token = nxt and nxt.group(1)


def encode(title):
    x = torch.zeros(64)
    for i in range(len(title) - 2):
        x[sum(map(ord, title[i:i + 3])) % 64] += 1
    return x


def epoch(model, opt, titles, steps):
    for step in range(steps):
        time.sleep(0.05)
        batch = torch.stack([encode(titles[(step * 8 + i) % len(titles)]) for i in range(8)])
        loss = nn.functional.cross_entropy(model(batch), torch.randint(0, 5, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5)))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    print(f"rank {rank} loss {epoch(model, opt, TITLES, 50):.3f}", flush=True)
    box = [None]
    if rank == 0:
        repo = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
        port = int(repo.stdout.readline())
        box[0] = list(list_records(f"http://127.0.0.1:{port}/oai"))
        repo.terminate()
        repo.wait()
    dist.broadcast_object_list(box, src=0)
    print(f"rank {rank} has {len(box[0])} records, loss {epoch(model, opt, box[0], 40):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
