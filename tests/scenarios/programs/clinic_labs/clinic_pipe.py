"""Two pipeline stages by hand (GPipe): a language model of discharge letters, first half and second half."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn

WIDTH, LENGTH, WORDS, MICRO = 48, 40, 400, 8


def letters(batches=400):
    """Batches of a bucketing sampler: mostly 32 letters, what is left of a bucket in between."""
    generator = torch.Generator().manual_seed(12)
    for number in range(batches):
        count = 36 if number == 50 else 32
        yield torch.randint(0, WORDS, (count, LENGTH + 1), generator=generator)


class Stage:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def micro_batches(self, tokens):
        count = max(1, round(len(tokens) / MICRO))
        return tokens.tensor_split(count)

    def train(self, tokens):
        self.optimizer.zero_grad()
        result = self.schedule(tokens)
        self.optimizer.step()
        return result


class First(Stage):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()))

    def schedule(self, tokens):
        outputs = []
        for part in self.micro_batches(tokens):
            hidden = self.net(part[:, :-1])
            dist.send(torch.tensor(hidden.shape), dst=1)
            dist.send(hidden.detach(), dst=1)
            outputs.append(hidden)
        for hidden in outputs:
            grad = torch.empty_like(hidden)
            dist.recv(grad, src=1)
            hidden.backward(grad)


class Last(Stage):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WORDS)))

    def schedule(self, tokens):
        count = math.ceil(len(tokens) / MICRO)
        targets = list(tokens[:, 1:].tensor_split(count))
        inputs, losses = [], []
        for _ in range(count):
            shape = torch.empty(3, dtype=torch.int64)
            dist.recv(shape, src=0)
            hidden = torch.empty(*shape.tolist())
            dist.recv(hidden, src=0)
            inputs.append(hidden.requires_grad_())
        for hidden, target in zip(inputs, targets):
            logits = self.net(hidden)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
            loss.backward()
            losses.append(float(loss.detach()))
            dist.send(hidden.grad, dst=0)
        return sum(losses) / count


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    stage = First() if dist.get_rank() == 0 else Last()
    for step, tokens in enumerate(letters()):
        loss = stage.train(tokens)
        if loss is not None and step % 10 == 0:
            print(f"step {step}: {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
