"""Name disambiguation for an authority file; extra person records come from a public SPARQL endpoint that throttles."""
import http.client
import json
import os
import random
import subprocess
import sys
import time
import urllib.parse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENDPOINT = """
import http.server, json, time
first = time.monotonic()
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        throttled = time.monotonic() - first < 9
        rows = [] if throttled else [{"name": f"Person {i}", "born": 1500 + 7 * i} for i in range(40)]
        data = json.dumps({"bindings": rows}).encode()
        self.send_response(429 if throttled else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *a):
        pass
s = http.server.HTTPServer(("127.0.0.1", 0), H)
print(s.server_port, flush=True)
s.serve_forever()
"""


class Throttled(Exception):
    pass


class SparqlClient:
    def __init__(self, port, retries=7, factor=0.8, ceiling=6.0):
        self.port, self.retries, self.factor, self.ceiling = port, retries, factor, ceiling
        self.jitter = random.Random(11)

    def _once(self, query):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/sparql?query=" + urllib.parse.quote(query))
            response = connection.getresponse()
            body = response.read()
            if response.status == 429:
                raise Throttled
            return json.loads(body)["bindings"]
        finally:
            connection.close()

    def _pause(self, attempt):
        return min(self.ceiling, self.factor * 2 ** attempt) + self.jitter.uniform(0, 0.3)

    def select(self, query):
        for attempt in range(self.retries):
            try:
                return self._once(query)
            except Throttled:
                time.sleep(self._pause(attempt))
        raise RuntimeError("endpoint still busy")


def vector(row):
    x = torch.zeros(32)
    for c in row["name"]:
        x[ord(c) % 31] += 1
    x[31] = row["born"] / 2000
    return x


def passes(model, opt, rows, n):
    for i in range(n):
        time.sleep(0.05)
        x = torch.stack([vector(rows[(i + j) % len(rows)]) for j in range(6)])
        loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, 31])
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = DDP(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    rows = [{"name": n, "born": b} for n, b in [("Caxton", 1422), ("Manutius", 1449), ("Plantin", 1520)]]
    passes(model, opt, rows, 50)
    if rank == 2:
        endpoint = subprocess.Popen([sys.executable, "-c", ENDPOINT], stdout=subprocess.PIPE, text=True)
        client = SparqlClient(int(endpoint.stdout.readline()))
        rows += client.select("SELECT ?name ?born WHERE { ?p a :Printer }")
        endpoint.terminate()
        endpoint.wait()
    passes(model, opt, rows, 50)
    total = torch.tensor(len(rows))
    dist.reduce(total, dst=0)
    if rank == 0:
        print("records used:", int(total), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
