"""Protein property regression with accelerate; the main process fetches new assays mid-way."""
import http.client
import json
import subprocess
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, TensorDataset

SERVICE = r'''
import http.server, json, time
credit, stamp = 1.0, time.monotonic()
class Assays(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global credit, stamp
        now = time.monotonic()
        credit, stamp = min(2.0, credit + (now - stamp) / 3.2), now
        if credit < 1:
            self.send_response(429)
            self.send_header("Retry-After", "3")
            body = b"{}"
        else:
            credit -= 1
            number = int(self.path.rsplit("/", 1)[1])
            self.send_response(200)
            body = json.dumps({"assay": number, "values": [(number * 13 + i) % 10 / 10 for i in range(20)]}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Assays)
print(server.server_port, flush=True)
server.serve_forever()
'''


class AssayClient:
    def __init__(self, port, attempts=6):
        self.port, self.attempts = port, attempts

    def _get(self, path):
        for attempt in range(self.attempts):
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            try:
                connection.request("GET", path)
                reply = connection.getresponse()
                body = reply.read()
            finally:
                connection.close()
            if reply.status == 200:
                return json.loads(body)
            time.sleep(int(reply.getheader("Retry-After", 2 ** attempt)))
        raise RuntimeError(f"{path}: still throttled after {self.attempts} attempts")

    def assays(self, numbers):
        return [self._get(f"/assays/{n}")["values"] for n in numbers]


def run(accelerator, model, optimizer, loader):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        time.sleep(0.1)
    return loss.item()


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    service = None
    if accelerator.is_main_process:
        service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
        client = AssayClient(int(service.stdout.readline()))
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(torch.rand(720, 20), torch.rand(720, 1)), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.print(f"first pass {run(accelerator, model, optimizer, loader):.4f}")

    box = [client.assays(range(5))] if accelerator.is_main_process else [None]
    broadcast_object_list(box, from_process=0)
    assays = torch.tensor(box[0])

    for step in range(25):
        loss = model(assays).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        time.sleep(0.1)
    accelerator.print(f"new assays {loss.item():.4f}")
    accelerator.wait_for_everyone()
    if service is not None:
        service.terminate()
        service.wait()
    accelerator.end_training()


if __name__ == "__main__":
    main()
