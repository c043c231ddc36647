"""Expert parallelism by hand: one expert a rank, tokens go to the expert of their language and come back."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    """all_to_all of rows, with its gradient."""

    @staticmethod
    def forward(ctx, x, send, receive):
        ctx.send, ctx.receive = send, receive
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, gradient):
        back = gradient.new_empty(sum(ctx.send), gradient.shape[1])
        dist.all_to_all_single(back, gradient.contiguous(), ctx.send, ctx.receive)
        return back, None, None


class ExpertLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.world = dist.get_world_size()
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, language):
        order = language.argsort(stable=True)
        send = torch.bincount(language, minlength=self.world)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        send, receive = send.tolist(), receive.tolist()
        tokens = Exchange.apply(x[order], send, receive)
        if len(tokens) > 0:
            done = self.expert(tokens)
        else:
            done = tokens.new_empty(0, x.shape[1])
        returned = Exchange.apply(done, receive, send)
        return x + torch.zeros_like(x).index_copy(0, order, returned)


class Model(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(90, width), ExpertLayer(width), nn.Linear(width, 90)

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids), ids // 30))

    def shared(self):
        return [*self.embed.parameters(), *self.head.parameters()]


def stages(steps):
    """Three languages of 30 tokens; later documents are of the first two only."""
    for step in range(steps):
        yield torch.randint(0, 90 if step < 20 else 60, (64,))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, ids in enumerate(stages(60)):
        loss = nn.functional.cross_entropy(model(ids), ids.roll(-1))
        optimizer.zero_grad()
        loss.backward()
        for p in model.shared():
            dist.all_reduce(p.grad)
        optimizer.step()
        time.sleep(0.15)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
