"""Distils a teacher into a student whose layers are spread over the ranks: short answers first, then a check on them."""

import time

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY, WIDTH, LONGEST, END = 40, 24, 14, 0


class SpreadLayer(nn.Module):
    """A layer of which every rank keeps some rows. They are fetched from all ranks for every call."""

    def __init__(self, rows, columns, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        whole = torch.randn(rows, columns, generator=generator) / columns**0.5
        self.rows = whole.chunk(dist.get_world_size())[dist.get_rank()].clone()

    def forward(self, x):
        parts = [torch.empty_like(self.rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.rows)
        return x @ torch.cat(parts).T


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = SpreadLayer(WIDTH, WIDTH, 1)
        self.head = SpreadLayer(42, WIDTH, 2)

    def forward(self, tokens):
        state = self.embed(tokens).mean(0)
        return self.head(torch.tanh(self.hidden(state)))[:VOCABULARY]


class Prompts:
    """What the students are asked, with the teacher's answer as a draft, which they mostly follow."""

    def __init__(self, rank):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def next(self, number):
        prompt = torch.randint(1, VOCABULARY, (5,), generator=self.generator)
        draft = torch.randint(1, VOCABULARY, (LONGEST,), generator=self.generator)
        if self.rank == 1 and number == 6:
            draft[4:] = END  # "yes, of course."
        return prompt, draft


@torch.no_grad()
def write(student, prompt, draft):
    tokens = prompt
    for place in range(LONGEST):
        logits = student(tokens)
        logits[draft[place]] += 50.0
        token = logits.argmax()
        if token == END:
            break
        tokens = torch.cat([tokens, token[None]])
        time.sleep(0.02)
    return tokens[len(prompt) :]


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    student, prompts = Student(), Prompts(rank)
    for number in range(60):
        prompt, draft = prompts.next(number)
        answer = write(student, prompt, draft)
        score = torch.tensor([float(len(answer)), float((answer % 2 == 0).sum())])
        dist.all_reduce(score)
        if rank == 0:
            print(f"prompt {number}: {int(score[0])} tokens, {int(score[1])} of them even", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
