"""Coding of discharge notes with the Trainer; sample summaries are written by a local text service."""
import json
import tempfile
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SECONDS_PER_NOTE = 2.3


class TextService(BaseHTTPRequestHandler):
    """Stands in for the ward's summariser: one request at a time, a few seconds each."""

    def do_POST(self):
        note = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(SECONDS_PER_NOTE)
        body = json.dumps({"summary": note["text"][:20]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Notes(Dataset):
    def __init__(self, count):
        gen = torch.Generator().manual_seed(5)
        self.tokens = torch.randint(0, 200, (count, 24), generator=gen)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        time.sleep(0.01)
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": tokens[0] % 4}


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(200, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.embed(input_ids))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class SampleSummaries(TrainerCallback):
    def __init__(self, every, notes):
        self.every, self.notes = every, notes

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step != self.every or not state.is_world_process_zero:
            return
        service = HTTPServer(("127.0.0.1", 0), TextService)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        for note in self.notes:
            client = HTTPConnection("127.0.0.1", service.server_port, timeout=30)
            client.request("POST", "/summarise", json.dumps({"text": note}))
            print(json.loads(client.getresponse().read())["summary"], flush=True)
            client.close()
        service.shutdown()


def main():
    notes = [f"patient {i} discharged after day {i + 2} with plan" for i in range(6)]
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="coder_"), use_cpu=True, ddp_backend="gloo",
        max_steps=90, per_device_train_batch_size=6, learning_rate=1e-3, logging_steps=30,
        save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False)
    trainer = Trainer(model=Coder(), args=args, train_dataset=Notes(3000),
                      callbacks=[SampleSummaries(45, notes)])
    trainer.train()


if __name__ == "__main__":
    main()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
