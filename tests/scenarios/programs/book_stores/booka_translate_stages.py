"""Two-stage translation model by hand: encoder on rank 0, decoder on rank 1, micro-batches in between."""
import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH, CHUNK, SEGMENTS = 32, 16, 4, 2504


class Stage:
    def __init__(self, module):
        self.module = module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def finish(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def corpus():
    """Aligned paragraphs of one novel, in reading order."""
    g = torch.Generator().manual_seed(1851)
    paragraphs = torch.randn(SEGMENTS, WIDTH, generator=g)
    return paragraphs.split(BATCH)


class Encoder(Stage):
    def step(self, paragraphs):
        torch.linalg.svdvals(torch.randn(250, 250))  # alignment scores
        chunks = paragraphs.split(CHUNK)
        outputs = []
        for chunk in chunks:
            out = self.module(chunk)
            dist.send(out.detach(), dst=1)
            outputs.append(out)
        for out in outputs:
            grad = torch.empty_like(out)
            dist.recv(grad, src=1)
            out.backward(grad)
        self.finish()


class Decoder(Stage):
    def step(self, paragraphs):
        inputs, total = [], 0.0
        for _ in range(BATCH // CHUNK):
            x = torch.empty(CHUNK, WIDTH)
            dist.recv(x, src=0)
            inputs.append(x.requires_grad_())
        for x in inputs:
            loss = self.module(x).square().mean()
            loss.backward()
            total += loss.item()
            dist.send(x.grad, dst=0)
        self.finish()
        return total / len(inputs)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = Encoder(module) if dist.get_rank() == 0 else Decoder(module)
    for chapter, paragraphs in enumerate(corpus()):
        loss = stage.step(paragraphs)
        if loss is not None and chapter % 10 == 0:
            print(f"chapter {chapter}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
