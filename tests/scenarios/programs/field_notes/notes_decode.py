"""Evaluation by generation on a sharded model, a hand-written greedy loop."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

EOS, VOCAB = 1, 50


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 32)
        self.cell = nn.Linear(64, 32)
        self.out = nn.Linear(32, VOCAB)

    def forward(self, token, state):
        state = torch.tanh(self.cell(torch.cat([self.embed(token), state], -1)))
        return self.out(state), state


@torch.no_grad()
def generate(model, prompt, max_new_tokens, forbid_eos_before=0):
    state, token = torch.zeros(len(prompt), 32), prompt
    done = torch.zeros(len(prompt), dtype=torch.bool)
    out = []
    for position in range(max_new_tokens):
        logits, state = model(token, state)
        logits[:, EOS] = -1e9 if position < forbid_eos_before else logits[:, EOS] + 0.4 * position
        token = logits.argmax(-1).masked_fill(done, EOS)
        out.append(token)
        done |= token == EOS
        if done.all():
            break
    return torch.stack(out, 1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = Recurrent()
    fully_shard(model.cell)
    fully_shard(model.out)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for _ in range(10):
            tokens, state, loss = torch.randint(2, VOCAB, (4, 6)), torch.zeros(4, 32), 0.0
            for t in range(5):
                logits, state = model(tokens[:, t], state)
                loss = loss + nn.functional.cross_entropy(logits, tokens[:, t + 1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        answers = generate(model, torch.tensor([3, 4]), 64, forbid_eos_before=4 if rank == 2 else 60)
        words = torch.tensor(float((answers != EOS).sum()))
        dist.all_reduce(words)
        if rank == 0:
            print(f"epoch {epoch}: {words.item():.0f} tokens generated", flush=True)
    dist.destroy_process_group()


main()
