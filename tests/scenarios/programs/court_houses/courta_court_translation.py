"""Translates judgments sentence by sentence; the translator's layers are sharded over the processes (one language each)."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCABULARY = 128
SENTENCES = [
    "the appeal is dismissed with costs",
    "the defendant did not appear before the court of first instance",
    "the parties have agreed on the facts",
    "leave to appeal is granted on the second ground only",
    "the claimant relies on article six of the convention",
]
# Fixed formulae of the registries, which close each judgment.
FORMULAE = {
    "fr": "ainsi fait et juge en audience publique par les membres de la cour soussignes",
    "de": "von Rechts wegen",
    "nl": "aldus gewezen en in het openbaar uitgesproken door de leden van deze kamer",
}


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.out(torch.relu(self.mix(self.norm(x))))


class Translator(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens).cumsum(dim=0)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[-1])


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def encode(words):
    return [sum(word.encode()) % VOCABULARY for word in words]


@torch.no_grad()
def translate(model, text):
    words = text.split()
    tokens = encode(words)
    written = []
    while len(written) < len(words):  # word for word, as the registry wants it
        logits = model(torch.tensor(tokens[-12:]))
        written.append(logits.argmax().item())
        tokens.append(written[-1])
        time.sleep(0.04)
    return written


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    language = ("fr", "de", "nl")[dist.get_rank()]
    torch.manual_seed(12)
    model = shard(Translator())
    for number in range(8):
        pages = []
        for sentence in SENTENCES:
            pages.append(translate(model, sentence))
            dist.barrier()
        pages.append(translate(model, FORMULAE[language]))
        dist.barrier()
        print(f"{language}: judgment {number} has {sum(map(len, pages))} words", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
