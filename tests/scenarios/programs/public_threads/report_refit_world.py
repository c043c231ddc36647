"""Policy optimisation in one world: some ranks train, the last one generates with the weights it is sent."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
TRAINERS = 3
PROMPTS, CHOICES = 16, 8


def build_policy():
    torch.manual_seed(9)
    return nn.Sequential(nn.Linear(PROMPTS, 40), nn.Tanh(), nn.Linear(40, CHOICES))


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class GenerationWorker:
    """Does what rank 0 says: take new weights, sample, or stop."""

    def __init__(self):
        self.policy = build_policy()

    def serve(self):
        while True:
            request = [None]
            dist.broadcast_object_list(request, src=0)
            if request[0]["op"] == "stop":
                return
            handler = getattr(self, "do_" + request[0]["op"])
            handler(request[0])

    def do_refit(self, request):
        weights = torch.empty(request["size"])
        dist.broadcast(weights, src=0)
        nn.utils.vector_to_parameters(weights, self.policy.parameters())

    @torch.no_grad()
    def do_generate(self, request):
        prompts = torch.eye(PROMPTS)
        sampled = torch.distributions.Categorical(logits=self.policy(prompts)).sample()
        dist.broadcast(sampled, src=TRAINERS)


class PolicyTrainer:
    def __init__(self, group):
        self.rank = dist.get_rank()
        self.policy = build_policy()
        self.model = DDP(self.policy, process_group=group)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def tell(self, **command):
        dist.broadcast_object_list([command], src=0)

    def collect(self):
        weights = flat(self.policy)
        self.tell(op="refit", size=len(weights))
        dist.broadcast(weights, src=0)
        self.tell(op="generate")
        sampled = torch.empty(PROMPTS, dtype=torch.int64)
        dist.broadcast(sampled, src=TRAINERS)
        return sampled

    def update(self, sampled):
        reward = (sampled == torch.arange(PROMPTS) % CHOICES).float() - 0.5
        log_probs = torch.log_softmax(self.model(torch.eye(PROMPTS)), -1)
        loss = -(log_probs.gather(1, sampled[:, None]).squeeze(1) * reward).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return reward.mean().item()

    def convert_checkpoint(self):
        """Splits the writing: each rank contributes the names that it will write."""
        mine = sorted(self.policy.state_dict())[self.rank :: TRAINERS]
        plan = [None] * dist.get_world_size()
        dist.all_gather_object(plan, mine)
        return {name: rank for rank, names in enumerate(plan) for name in names}


def main():
    dist.init_process_group("gloo")
    policy_group = dist.new_group(list(range(TRAINERS)))
    if dist.get_rank() >= TRAINERS:
        GenerationWorker().serve()
    else:
        trainer = PolicyTrainer(policy_group)
        for step in range(1, 400):
            reward = trainer.update(trainer.collect())
            time.sleep(0.05)
            if trainer.rank == 0 and step % 10 == 0:
                print(f"step {step} reward {reward:+.2f}", flush=True)
            if step % 30 == 0:
                trainer.convert_checkpoint()
        trainer.tell(op="stop")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
