"""Safety report tagging with accelerate; the documents are parsed on the fly in loader workers."""
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset

VOCABULARY = 200
LENGTH = 24


class Converter:
    """Front of the document converter: it delivers one page of text at a time."""

    def __init__(self, seconds_per_page):
        self.seconds_per_page = seconds_per_page

    def pages(self, document):
        for page in range(document["pages"]):
            time.sleep(self.seconds_per_page)
            yield [(document["id"] * 17 + page * 5 + i) % VOCABULARY for i in range(40)]


class Reports(IterableDataset):
    def __init__(self, rank, world, count=96):
        self.rank, self.world, self.count = rank, world, count

    def documents(self):
        for number in range(self.rank, self.count, self.world):
            yield {"id": number, "pages": 175 if number == 49 else 1}

    def __iter__(self):
        converter = Converter(seconds_per_page=0.08)
        for document in self.documents():
            tokens = []
            for page in converter.pages(document):
                tokens.extend(page)
            yield torch.tensor(tokens[-LENGTH:]), document["id"] % 3


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, 16)
        self.mix = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(torch.relu(self.mix(self.embed(tokens))).mean(1))


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(11)
    reports = Reports(accelerator.process_index, accelerator.num_processes)
    loader = DataLoader(reports, batch_size=1, num_workers=1, prefetch_factor=2)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    started = time.time()
    for epoch in range(2):
        running = 0.0
        if epoch == 1:
            reports.count = 45
        for step, (tokens, tag) in enumerate(loader, 1):
            loss = torch.nn.functional.cross_entropy(model(tokens), tag)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            running += loss.item()
            time.sleep(0.16)
        accelerator.print(f"epoch {epoch}: loss {running / step:.4f}, {time.time() - started:.0f} s")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
