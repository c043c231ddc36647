"""Frost risk for vineyards (accelerate). Station records come over HTTP from an archive, one page after another."""
import http.server
import json
import threading
import time
import urllib.request

import torch
from accelerate import Accelerator
from torch import nn

STATIONS = {0: "Beaune", 1: "Chablis", 2: "Jerez"}


class Archive(http.server.BaseHTTPRequestHandler):
    """Stand-in for the weather archive: old years lie on tape and come slowly."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, station, year = self.path.split("/")
        on_tape = station == "Chablis" and int(year) < 2012
        g = torch.Generator().manual_seed(int(year) + len(station))
        rows = [json.dumps(torch.randn(12, generator=g).tolist()) + "\n" for _ in range(64)]
        self.send_response(200)
        self.send_header("Content-Length", str(sum(map(len, rows))))
        self.end_headers()
        for row in rows:
            self.wfile.write(row.encode())
            self.wfile.flush()
            time.sleep(0.22 if on_tape else 0.0005)

    def log_message(self, *args):
        pass


class Client:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def year(self, station, year):
        rows = []
        with urllib.request.urlopen(f"{self.base}/{station}/{year}", timeout=20) as reply:
            for line in reply:
                rows.append(json.loads(line))
        return torch.tensor(rows)


def main():
    accelerator = Accelerator(cpu=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(server.server_address[1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(11, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    station = STATIONS[accelerator.process_index]
    for year in range(2020, 2010, -1):
        records = client.year(station, year)
        if year == 2011:
            accelerator.print("last year of the archive")
        for _ in range(12):
            for part in records.split(16):
                loss = nn.functional.mse_loss(model(part[:, :11]), part[:, 11:])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"{year}: {loss.item():.3f}")
    mean = accelerator.reduce(loss.detach(), "mean")
    accelerator.print(f"done: {mean.item():.3f}")
    server.shutdown()
    server.server_close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
