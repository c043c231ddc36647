"""Expert parallelism by hand: each rank owns one expert, tokens travel there and back by all_to_all."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.nn.functional import all_to_all_single


class ExpertParallelFFN(nn.Module):
    def __init__(self, dim: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.world = dist.get_world_size(group)
        self.router = nn.Linear(dim, self.world)
        self.expert = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probability, owner = self.router(x).softmax(-1).max(-1)
        order = owner.argsort()
        sent = torch.bincount(owner, minlength=self.world)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)

        inbox = x.new_empty(int(received.sum()), x.shape[1])
        inbox = all_to_all_single(inbox, x[order], received.tolist(), sent.tolist(), group=self.group)
        if inbox.shape[0] == 0:
            return x
        answers = self.expert(inbox)

        outbox = torch.empty_like(x)
        outbox = all_to_all_single(outbox, answers, sent.tolist(), received.tolist(), group=self.group)
        back = torch.empty_like(outbox).index_copy(0, order, outbox)
        return x + probability[:, None] * back


class Forecaster(nn.Module):
    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 16)
        self.ffn = ExpertParallelFFN(16, group)
        self.head = nn.Linear(16, 1)

    def forward(self, weather: torch.Tensor) -> torch.Tensor:
        return self.head(self.ffn(self.stem(weather).tanh()))


def average_gradients(parameters) -> None:
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Forecaster(dist.new_group())
    shared = [p for name, p in model.named_parameters() if "expert" not in name]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    torch.manual_seed(40 + dist.get_rank())
    for step in range(400):
        # winter: the router has little use for the expert of the warm seas
        season = 0.0 if step < 30 else 25.0
        with torch.no_grad():
            model.ffn.router.bias[1] = -season
        weather = torch.randn(32, 5)
        loss = (model(weather) - weather.sum(1, keepdim=True)).square().mean()
        loss.backward()
        average_gradients(shared)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"{step:4d} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
