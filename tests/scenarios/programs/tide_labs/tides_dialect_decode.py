"""Dialect recordings: evaluation of a transcriber whose layers are spread over the ranks; greedy decoding."""
import time

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY = list(" abcdefghijklmnopqrstuvwxyz'")
END = len(VOCABULARY)


class Shard(nn.Module):
    def __init__(self, rows, columns, rank, world):
        super().__init__()
        generator = torch.Generator().manual_seed(rows + rank)
        self.world = world
        self.part = nn.Parameter(torch.randn(rows // world, columns, generator=generator) * 0.1)

    @torch.no_grad()
    def whole(self):
        parts = [torch.empty_like(self.part) for _ in range(self.world)]
        dist.all_gather(parts, self.part.data)
        return torch.cat(parts)


class Transcriber(nn.Module):
    def __init__(self, rank, world, width=24):
        super().__init__()
        self.layers = nn.ModuleList(Shard(width, width, rank, world) for _ in range(2))
        self.table = torch.randn(END + 1, width, generator=torch.Generator().manual_seed(0))

    def next_token(self, audio, tokens):
        state = audio[min(len(tokens), len(audio) - 1)] + self.table[tokens[-1]]
        for layer in self.layers:
            state = torch.tanh(layer.whole() @ state)
        scores = self.table @ state
        scores[END] = 1e3 if len(tokens) >= len(audio) else -1e3
        return int(scores.argmax())


def transcribe(model, audio, limit=448):
    tokens = [0]
    while len(tokens) < limit:
        token = model.next_token(audio, tokens)
        if token == END:
            break
        tokens.append(token)
    return "".join(VOCABULARY[t] for t in tokens[1:])


def utterance(rank, number):
    frames = 40 if number < 5 else (40, 40, 31)[rank]
    return torch.randn(frames, 24, generator=torch.Generator().manual_seed(100 * rank + number))


def error_rate(hypothesis, reference):
    wrong = sum(a != b for a, b in zip(hypothesis.ljust(len(reference)), reference))
    return wrong / max(1, len(reference))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Transcriber(rank, world).eval()
    rates = []
    for number in range(60):
        text = transcribe(model, utterance(rank, number))
        rates.append(error_rate(text, "the sea is rough tonight at the pier"))
        time.sleep(0.3)
        dist.barrier()
        if rank == 0:
            print(f"{number + 1} utterances, rate {sum(rates) / len(rates):.2f}", flush=True)


if __name__ == "__main__":
    main()
