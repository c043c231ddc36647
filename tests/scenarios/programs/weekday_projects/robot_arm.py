"""Learners train a policy on transitions that an actor sends them; learners average gradients in a group of their own."""

import torch
import torch.distributed as dist


def sizes(world: int) -> tuple[list[int], int]:
    """Ranks of the learners, and the actor's."""
    return list(range(world - 1)), world - 1


def act(learners: list[int], episodes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    dist.barrier()  # everybody is ready
    for episode in range(episodes):
        joints = torch.rand(16, 6, generator=generator)
        for learner in learners:
            dist.send(joints + learner, dst=learner)
        if episode % 5 == 0:
            print(f"actor: {episode} episodes", flush=True)


def learn(learners: list[int], actor: int, episodes: int) -> None:
    group = dist.new_group()
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 6))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    dist.barrier()
    for _ in range(episodes):
        joints = torch.empty(16, 6)
        dist.recv(joints, src=actor)
        loss = (policy(joints) - joints.roll(1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= dist.get_world_size(group)
        optimizer.step()


def main() -> None:
    dist.init_process_group("gloo")
    learners, actor = sizes(dist.get_world_size())
    if dist.get_rank() == actor:
        act(learners, 40)
    else:
        learn(learners, actor, 40)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
