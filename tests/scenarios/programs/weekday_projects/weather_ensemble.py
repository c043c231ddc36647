"""An ensemble of weather models: states are mixed in one group and spreads in another, in the order a rank needs them."""

import torch
import torch.distributed as dist


class Exchange:
    def __init__(self) -> None:
        everyone = list(range(dist.get_world_size()))
        self.groups = {"state": dist.new_group(everyone), "spread": dist.new_group(everyone)}

    def mean(self, name: str, value: torch.Tensor) -> torch.Tensor:
        group = self.groups[name]
        dist.all_reduce(value, group=group)
        return value / dist.get_world_size(group)


class Member:
    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(rank)
        self.state = torch.randn(24, generator=self.generator)

    def advance(self) -> None:
        noise = torch.randn(24, generator=self.generator)
        self.state = 0.9 * self.state.roll(1) + 0.1 * noise

    def outdated(self) -> list[str]:
        """What has to be exchanged, most urgent first."""
        drift = {"state": self.state.abs().mean().item(), "spread": 0.1}
        return sorted(drift, key=lambda name: drift[name], reverse=True)


def main() -> None:
    dist.init_process_group("gloo")
    member, exchange = Member(dist.get_rank()), Exchange()
    for step in range(40):
        member.advance()
        for name in member.outdated():
            value = member.state.clone() if name == "state" else member.state.var().reshape(1)
            mixed = exchange.mean(name, value)
            if name == "state":
                member.state = 0.5 * member.state + 0.5 * mixed
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: {member.state.norm().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
