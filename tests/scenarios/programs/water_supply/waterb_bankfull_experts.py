"""Rating curves with a common trunk and overbank experts, one expert per process."""
import torch
import torch.distributed as dist
from torch import nn

GAUGES = {0: "Ferry Bridge", 1: "Old Mill", 2: "Castle Ford", 3: "Heath"}
CAPACITY = 16


class Exchange(torch.autograd.Function):
    """Rows to the expert's process and back; its gradient takes the opposite way."""

    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class OverbankExperts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.gate = nn.Linear(width, dist.get_world_size(), bias=False)

    def forward(self, hidden, overbank):
        chosen = overbank.nonzero().flatten()[: CAPACITY]
        if chosen.numel() == 0:
            return hidden
        rows = hidden[chosen]
        score = self.gate(rows).softmax(-1)
        sent = (score.t().unsqueeze(-1) * rows.unsqueeze(0))  # expert, row, width
        sent = nn.functional.pad(sent, (0, 0, 0, CAPACITY - len(chosen)))
        there = Exchange.apply(sent)
        back = Exchange.apply(self.expert(there))
        return hidden.index_add(0, chosen, back[:, : len(chosen)].sum(0))


class RatingModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.experts = OverbankExperts(width)
        self.flow = nn.Linear(width, 1)

    def common(self):
        yield from self.trunk.parameters()
        yield from self.experts.gate.parameters()
        yield from self.flow.parameters()

    def forward(self, stage):
        return self.flow(self.experts(self.trunk(stage), stage[:, 0] > 1.0)).squeeze(1)


class Gauge:
    def __init__(self, rank):
        self.name = GAUGES[rank]
        self.gen = torch.Generator().manual_seed(rank)

    def week(self, number):
        stage = torch.rand(128, 5, generator=self.gen) * 1.3
        if self.name == "Heath" and number > 150:  # summer: groundwater-fed, never above bankfull
            stage[:, 0] *= 0.5
        return stage, stage[:, 0] ** 1.6 + 0.5 * (stage[:, 0] - 1.0).clamp(min=0)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    torch.set_num_threads(1)
    gauge = Gauge(dist.get_rank())
    model = RatingModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(1000):
        stage, flow = gauge.week(number)
        for _ in range(350):  # hysteresis of the falling limb
            stage = stage + 1e-5 * torch.tanh(stage.roll(1, 0) - stage)
        loss = (model(stage) - flow).square().mean()
        optimizer.zero_grad()
        loss.backward()
        bundle = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.common()])
        dist.all_reduce(bundle)
        for p, part in zip(model.common(), bundle.split([p.numel() for p in model.common()])):
            p.grad = part.view_as(p) / dist.get_world_size()
        optimizer.step()
        if number % 40 == 0:
            print(f"week {number} {gauge.name} {loss.item():.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
