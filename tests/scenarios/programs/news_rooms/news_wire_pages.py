"""Keyword extraction from wire copy with Lightning. Items come over HTTP from the wire's page server, which rank 0 starts."""
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request


class Pages(http.server.BaseHTTPRequestHandler):
    """Pages of items. Items that are not in the cache come from the agency, as soon as it has them."""

    protocol_version = "HTTP/1.1"
    cached = range(0, 110)
    agency = threading.Condition()

    def do_GET(self):
        desk, page = map(int, self.path.strip("/").split("/"))
        if desk == 1 and page not in self.cached:
            with self.agency:
                self.agency.wait()
        body = json.dumps([[(7 * page + 13 * desk + 3 * i * k) % 500 for k in range(1, 33)] for i in range(8)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)


def train():
    import lightning as L
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, IterableDataset

    class Wire(IterableDataset):
        def __init__(self, address, desk, pages):
            self.address, self.desk, self.pages = address, desk, pages

        def __iter__(self):
            for page in range(self.pages):
                with urllib.request.urlopen(f"{self.address}/{self.desk}/{page}") as reply:
                    items = json.loads(reply.read())
                for item in items:
                    yield torch.tensor(item)

    class Keywords(L.LightningModule):
        def __init__(self, words=500, width=64):
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.context = nn.Conv1d(width, width, 5, padding=2)
            self.out = nn.Linear(width, 1)

        def training_step(self, ids, _):
            time.sleep(0.03)
            x = self.embed(ids).transpose(1, 2)
            logits = self.out(torch.relu(self.context(x)).transpose(1, 2)).squeeze(-1)
            return nn.functional.binary_cross_entropy_with_logits(logits, (ids % 11 == 0).float())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Start(L.Callback):
        """The page server runs beside rank 0; all read from it."""

        def setup(self, trainer, module, stage):
            port = None
            if trainer.is_global_zero:
                self.server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
                port = int(self.server.stdout.readline())
            port = trainer.strategy.broadcast(port)
            wire.address = f"http://127.0.0.1:{port}"
            wire.desk = trainer.global_rank

        def teardown(self, trainer, module, stage):
            if trainer.is_global_zero:
                self.server.terminate()

    wire = Wire(None, 0, pages=400)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Start()],
    )
    trainer.fit(Keywords(), DataLoader(wire, batch_size=8))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else train()
