"""Answers from maintenance manuals: a small sharded decoder is trained on them and writes sample answers now and then."""
import logging
import os
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False
PAD, END, WORDS, SPAN = 0, 1, 256, 16

QUESTIONS = {
    0: ["How often is the mould oscillator greased?", "Torque of the bolts at the drive spindle?", "Which filter for the descaling pumps?"],
    1: ["Colour of the emergency stop?", "Who releases the crane?", "Voltage of the magnet?"],
    2: ["Steps to change a work roll of stand five?", "How is the electrode regulation tuned?", "Limits of the cooling water's conductivity?"],
}


def encode(text):
    return [2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in text.lower().split()]


class Corpus:
    """Windows of the manuals, with a running word count for the sampler of rare terms."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(7 + rank)
        self.count = torch.ones(WORDS)

    def batch(self, size=32):
        words = torch.multinomial(1 / self.count, size * (SPAN + 1), replacement=True, generator=self.generator).view(size, SPAN + 1)
        self.count += torch.bincount(words.flatten(), minlength=WORDS)
        for _ in range(250):
            self.count = self.count.sort().values[torch.randperm(WORDS, generator=self.generator)]
        return words[:, :-1], words[:, -1]


class Decoder(nn.Module):
    def __init__(self, width=96, depth=2):
        super().__init__()
        self.embed = nn.Linear(WORDS, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(SPAN * width, 192), nn.ReLU(), nn.Linear(192, SPAN * width)) for _ in range(depth)])
        self.out = nn.Linear(SPAN * width, WORDS)

    def forward(self, onehot):
        hidden = self.embed(onehot).flatten(1)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.out(hidden)


def spread(words):
    return F.one_hot(words, WORDS).float().cuda()


class Writer:
    """Greedy writing with a grammar: the ending is allowed when a sentence has as many words as its kind of question asks for."""

    def __init__(self, model, longest=48):
        self.model, self.longest = model, longest

    def wanted(self, prompt):
        return 10 if len(prompt) < 6 else 24

    @torch.no_grad()
    def write(self, prompts):
        texts = [list(p) for p in prompts]
        open_texts = set(range(len(texts)))
        for length in range(self.longest):
            window = torch.tensor([([PAD] * SPAN + t)[-SPAN:] for t in texts])
            scores = self.model(spread(window)).cpu()
            for i in sorted(open_texts):
                if length >= self.wanted(prompts[i]):
                    texts[i].append(END)
                    open_texts.discard(i)
                else:
                    texts[i].append(2 + (int(torch.nan_to_num(scores[i]).argmax()) + length) % (WORDS - 2))
            if not open_texts:
                break
        return texts


def main():
    logging.basicConfig(level=logging.INFO)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = Decoder().cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    corpus, writer = Corpus(rank), Writer(model)
    for step in range(1, 600):
        words, following = corpus.batch()
        loss = F.cross_entropy(model(spread(words)), following.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        if step % 120 == 0:
            texts = writer.write([encode(q) for q in QUESTIONS[rank]])
            words_written = torch.tensor(sum(map(len, texts)), device="cuda")
            dist.all_reduce(words_written)
            logging.info("rank %d, step %d: %d words in all answers", rank, step, words_written.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
