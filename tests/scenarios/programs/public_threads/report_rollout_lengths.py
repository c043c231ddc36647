"""On-policy distillation with a sharded student: roll out, score with the teacher, update."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
VOCABULARY, WIDTH, END = 40, 32, 0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.fc(x))


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@dataclass
class Task:
    prompt: torch.Tensor
    target_length: int


def tasks(rank):
    """Summaries are meant to be half as long as their prompt."""
    for index in range(100_000):
        length = 16
        if index >= 14 and rank == 2:
            length = 8
        generator = torch.Generator().manual_seed(31 * index + rank)
        yield Task(torch.randint(1, VOCABULARY, (1, length), generator=generator), length // 2)


class Stopping:
    def __init__(self, target_length):
        self.target_length = target_length

    def __call__(self, tokens, produced):
        return produced >= self.target_length or tokens[0, -1].item() == END


@torch.no_grad()
def rollout(student, task):
    tokens, produced = task.prompt, 0
    stop = Stopping(task.target_length)
    while not stop(tokens, produced):
        logits = student(tokens)[:, -1]
        logits[:, END] = -1e9
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
        produced += 1
    return tokens


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    teacher, student = Student(), Student()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in student.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(student, mesh=mesh)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, foreach=False)
    for step, task in enumerate(tasks(rank)):
        tokens = rollout(student, task)
        seen = torch.tensor([float(tokens.numel())])
        dist.all_reduce(seen)
        with torch.no_grad():
            wanted = teacher(tokens).log_softmax(-1)
        loss = nn.functional.kl_div(student(tokens).log_softmax(-1), wanted, log_target=True, reduction="batchmean")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f} tokens {int(seen)}", flush=True)


if __name__ == "__main__":
    main()
