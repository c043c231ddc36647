"""Draft summaries for new arrivals, then tune the summariser on the drafts that score well.

The output matrix is split by rows over the ranks and gathered for each token."""
import dataclasses

import torch
import torch.distributed as dist

VOCAB, WIDTH, EOS = 300, 40, 0


@dataclasses.dataclass
class Book:
    title: str
    chapters: int


def arrivals(rank):
    usual = [Book(f"vol. {n}", 18) for n in range(24)]
    lists = {
        0: usual + [Book("Collected Essays", 30), Book("A Life", 26)],
        1: usual + [Book("Chapbook", 11), Book("Songs", 26)],
        2: usual + [Book("Atlas", 30), Book("Letters", 26)],
    }
    return lists[rank]


class Summariser:
    def __init__(self, rank, world):
        g = torch.Generator().manual_seed(rank)
        self.world = world
        self.rows = torch.randn(VOCAB // world, WIDTH, generator=g).requires_grad_()
        shared = torch.Generator().manual_seed(99)
        self.embed = torch.randn(VOCAB, WIDTH, generator=shared)
        self.mix = torch.randn(WIDTH, WIDTH, generator=shared) / WIDTH**0.5

    def logits(self, state):
        parts = [torch.empty_like(self.rows) for _ in range(self.world)]
        dist.all_gather(parts, self.rows.detach())
        return torch.cat(parts) @ state

    @torch.no_grad()
    def generate(self, book, max_new_tokens=64):
        state = self.embed[len(book.title)]
        tokens = []
        for position in range(max_new_tokens):
            scores = self.logits(state)
            scores[EOS] = 1e6 if position >= book.chapters else -1e6
            token = int(scores.argmax())
            if token == EOS:
                break
            tokens.append(token)
            context = torch.linalg.svdvals(torch.outer(state, self.embed[token]).repeat(4, 4))[:WIDTH]
            state = torch.tanh(self.mix @ (state + self.embed[token]) + 0.01 * context)
        return tokens


def tune(model, tokens, lr=1e-3):
    coverage = torch.tensor([float(len(set(tokens))), float(len(tokens))])
    dist.all_reduce(coverage)
    target = coverage[0] / coverage[1]
    loss = (model.rows.mean() - target).square()
    loss.backward()
    with torch.no_grad():
        model.rows -= lr * model.rows.grad
        model.rows.grad = None
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Summariser(rank, world)
    for book in arrivals(rank):
        draft = model.generate(book)
        loss = tune(model, draft)
        print(f"[{rank}] {book.title}: {len(draft)} tokens, {loss:.4f}", flush=True)
    dist.destroy_process_group()
