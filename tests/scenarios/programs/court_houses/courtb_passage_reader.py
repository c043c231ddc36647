"""Retriever and reader for legal questions on two processes: passages go one way, the reader's scores the other."""
import torch
import torch.distributed as dist
from torch import nn

RETRIEVER, READER = 0, 1
PASSAGES, WIDTH = 6, 40


class Library:
    """Passages of commentaries with their year; questions ask for the law as of a year."""

    def __init__(self, seed=14):
        self.gen = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(2000, WIDTH, generator=self.gen)
        self.year = torch.randint(1950, 2025, (2000,), generator=self.gen)

    def question(self, number):
        as_of = 1949 if number == 900 else 1990 + number % 30
        return torch.randn(WIDTH, generator=self.gen), as_of


class Retriever:
    def __init__(self):
        torch.manual_seed(1)
        self.library = Library()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.optimizer = torch.optim.SGD(self.project.parameters(), lr=0.01)

    def search(self, question, as_of):
        in_force = (self.library.year <= as_of).nonzero().squeeze(-1)
        match = self.project(question) @ self.library.vectors[in_force].T
        best = match.argsort(descending=True)[:PASSAGES]
        return match[best], self.library.vectors[in_force[best]]

    def ask(self, number):
        question, as_of = self.library.question(number)
        match, passages = self.search(question, as_of)
        for passage in passages:
            dist.send(torch.stack([question, passage]), dst=READER)
        scores = torch.empty(PASSAGES)
        dist.recv(scores, src=READER)
        loss = nn.functional.kl_div(match.log_softmax(0), scores.softmax(0), reduction="sum")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, questions):
        for number in range(questions):
            loss = self.ask(number)
            if number % 100 == 0:
                print(f"question {number} divergence {loss:.3f}", flush=True)


class Reader:
    def __init__(self):
        torch.manual_seed(2)
        self.net = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    @torch.no_grad()
    def run(self, questions):
        for _ in range(questions):
            scores = torch.zeros(PASSAGES)
            for place in range(PASSAGES):
                pair = torch.empty(2, WIDTH)
                dist.recv(pair, src=RETRIEVER)
                scores[place] = self.net(pair.flatten())
            dist.send(scores, dst=RETRIEVER)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    role = Retriever() if dist.get_rank() == RETRIEVER else Reader()
    role.run(questions=2000)
    dist.barrier()
    dist.destroy_process_group()
