"""Classifies news by topic with accelerate; the articles come from a stream that the ranks share line by line."""

import itertools

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset

TOPICS = 4


def articles(count: int):
    for number in range(count):
        yield {"id": number, "words": [(number * 7 + place) % 200 for place in range(10)], "topic": number % TOPICS}


class Stream(IterableDataset):
    def __init__(self, rank: int, world: int, count: int) -> None:
        self.rank, self.world, self.count = rank, world, count

    def __iter__(self):
        for article in itertools.islice(articles(self.count), self.rank, None, self.world):
            if article["id"] % 5 == 0:  # advertisements
                continue
            yield torch.tensor(article["words"]), article["topic"]


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(200, 12)
        self.topic = torch.nn.Linear(12, TOPICS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.topic(self.bag(words))


def main() -> None:
    accelerator = Accelerator(cpu=True)
    stream = Stream(accelerator.process_index, accelerator.num_processes, 170)
    loader = DataLoader(stream, batch_size=9)
    model = Classifier()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2))
    for epoch in range(4):
        correct = torch.zeros(1)
        for words, topics in loader:
            logits = model(words)
            accelerator.backward(torch.nn.functional.cross_entropy(logits, topics))
            optimizer.step()
            optimizer.zero_grad()
            correct += (logits.argmax(1) == topics).sum()
        found = accelerator.gather(correct).sum()
        accelerator.print(f"epoch {epoch}: {int(found)} right", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
