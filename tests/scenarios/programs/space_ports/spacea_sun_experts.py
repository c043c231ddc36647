"""Power budget forecast with a few experts whose weights are spread over the ranks."""
import torch
import torch.distributed as dist
from torch import nn


class SpreadLinear(nn.Module):
    """Linear layer of which each rank owns some of the output rows."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.world = dist.get_world_size()
        self.rows = nn.Parameter(torch.randn(outputs // self.world, inputs) / inputs**0.5)

    def forward(self, x):
        parts = [torch.empty_like(self.rows) for _ in range(self.world)]
        dist.all_gather(parts, self.rows.detach())
        parts[dist.get_rank()] = self.rows
        return x @ torch.cat(parts).T


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = SpreadLinear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class PowerNet(nn.Module):
    PHASES = ("sunlit", "penumbra", "eclipse")

    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.experts = nn.ModuleDict({phase: Expert(width) for phase in self.PHASES})
        self.head = nn.Linear(width, 1)

    def forward(self, telemetry):
        hidden = torch.tanh(self.embed(telemetry))
        mixed = torch.zeros_like(hidden)
        shadow = telemetry[:, 0]
        bounds = {"sunlit": shadow < 0.3, "penumbra": (shadow >= 0.3) & (shadow < 0.7), "eclipse": shadow >= 0.7}
        for phase, expert in self.experts.items():
            rows = bounds[phase].nonzero().squeeze(1)
            if rows.numel():
                mixed = mixed.index_add(0, rows, expert(hidden[rows]))
        return self.head(hidden + mixed)


def orbit_shadow(beta_angle, samples):
    """Shadow depth along an orbit; above a beta angle of about 66 degrees the umbra is never entered."""
    depth = torch.rand(samples)
    ceiling = 1.0 if beta_angle < 66 else 0.62
    return depth * ceiling


def telemetry_batch(beta_angle, samples=20000):
    shadow = orbit_shadow(beta_angle, samples)
    rest = torch.randn(samples, 4)
    power = (1 - shadow) * 1.4 + 0.1 * rest[:, 0]
    return torch.cat([shadow.unsqueeze(1), rest], dim=1), power.unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(20)
    model = PowerNet()
    torch.manual_seed(21 + rank)
    shared = [p for name, p in model.named_parameters() if not name.endswith("rows")]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    beta = [12.0, 31.0, 48.0][rank]
    drift = [0.02, 0.05, 0.30][rank]  # degrees per day
    for day in range(400):
        telemetry, power = telemetry_batch(beta + drift * day)
        loss = (model(telemetry) - power).square().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in shared if p.grad is not None])
        norm = flat.norm()
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        for p in shared:
            if p.grad is not None:
                p.grad.div_(norm.clamp_min(1.0))
        optimizer.step()
        if day % 20 == 0 and rank == 0:
            print(f"day {day}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
