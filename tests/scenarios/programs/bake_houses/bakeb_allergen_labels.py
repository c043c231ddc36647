"""Allergen classifier over recipe texts; receipts of each step are uploaded in the background."""
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

CODES = {"A": "gluten", "C": "egg", "F": "soy", "G": "milk", "H": "nuts", "N": "sesame"}
INDEX = {code: i for i, code in enumerate(CODES)}


class ReceiptUploader(threading.Thread):
    def __init__(self):
        super().__init__(name="uploader")
        self.inbox = queue.Queue()
        self.sent = 0

    def run(self):
        while True:
            receipt = self.inbox.get()
            if receipt is None:
                return
            self.sent += len(str(receipt))


def recipes(kitchen):
    """Endless recipes of one kitchen: words as counts, and the code on the card."""
    g = torch.Generator().manual_seed(kitchen)
    letters = list(CODES)
    number = 0
    while True:
        number += 1
        words = torch.rand(40, generator=g)
        code = letters[int(words[:6].argmax())]
        if kitchen == 1 and number == 1500:
            code = "O"  # sulphites, new on the cards since the wine menu
        yield words, code


def take(source, count):
    rows = [next(source) for _ in range(count)]
    words = torch.stack([w for w, _ in rows])
    kernel = torch.linalg.inv(torch.eye(120) + 0.01 * torch.rand(120, 120))
    return words + 1e-6 * kernel[0, 0], torch.tensor([INDEX[code] for _, code in rows])


def average(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    uploader = ReceiptUploader()
    uploader.start()
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, len(CODES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = recipes(dist.get_rank())
    for step in range(600):
        words, codes = take(source, 16)
        loss = nn.functional.cross_entropy(model(words), codes)
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        uploader.inbox.put({"step": step, "loss": loss.item()})
        if step % 25 == 0 and dist.get_rank() == 0:
            print(f"step {step} {loss.item():.3f}", flush=True)
    uploader.inbox.put(None)
    uploader.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
