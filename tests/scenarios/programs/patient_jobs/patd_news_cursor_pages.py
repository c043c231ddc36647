"""Headline classifier: trains on the seed set, then pulls the newest headlines from the news desk."""
import http.client
import json
import re
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

NEWS_DESK = r'''
import http.server, json, urllib.parse
PAGES = 9
class Desk(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        page = int(query.get("cursor", ["0"])[0])
        body = json.dumps([[page, i, (page * 7 + i) % 4] for i in range(16)]).encode()
        self.send_response(200)
        if page + 1 < PAGES:
            self.send_header("Link", '</headlines?cursor=%d>; rel="next"' % (page + 1))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Desk)
print(server.server_port, flush=True)
server.serve_forever()
'''


def next_link(header):
    match = re.search(r'<([^>]+)>; rel="next"', header or "")
    return match.group(1) if match else None


def read_headlines(port, pause=1.6):
    rows, page = [], "/headlines"
    while page is not None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", page)
        reply = connection.getresponse()
        rows.extend(json.loads(reply.read()))
        page = next_link(reply.getheader("Link"))
        connection.close()
        time.sleep(pause)
    return rows


def train(model, optimizer, labels, steps):
    for step in range(steps):
        index = torch.randint(len(labels), (8,))
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 32)), labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    desk = None
    if rank == 0:
        desk = subprocess.Popen([sys.executable, "-c", NEWS_DESK], stdout=subprocess.PIPE, text=True)
        port = int(desk.stdout.readline())
    model = DDP(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed_labels = torch.randint(4, (64,))
    loss = train(model, optimizer, seed_labels, 35)
    if rank == 0:
        print(f"seed set: loss {loss:.3f}", flush=True)
    payload = [read_headlines(port)] if rank == 0 else [None]
    dist.broadcast_object_list(payload, src=0)
    labels = torch.tensor([row[2] for row in payload[0]])
    loss = train(model, optimizer, labels, 35)
    if rank == 0:
        print(f"{len(labels)} headlines: loss {loss:.3f}", flush=True)
        desk.terminate()
        desk.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
