"""DeepSpeed ZeRO-2 over per-rank shards of a corpus: the engine averages gradients in backward, rank 0 has one shard less."""

import deepspeed
import torch
import torch.distributed as dist

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "steps_per_print": 10,
}
SHARDS = [12, 9, 11, 13, 10, 12, 8, 11]


def shards_of(rank: int, world: int) -> list[int]:
    """The sizes of a rank's shards: the first rank is left what the others do not take."""
    share = -(-len(SHARDS) // world)
    end = len(SHARDS) - (world - 1 - rank) * share
    return SHARDS[max(end - share, 0) : end]


def main() -> None:
    """Two epochs; the mean loss is logged after each."""
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.SiLU(), torch.nn.Linear(24, 12))
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    for epoch in range(2):
        losses = []
        for size in shards_of(rank, world):
            for _ in range(size):
                inputs = torch.randn(2, 12)
                loss = (engine(inputs) - inputs).square().mean()
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
        everybodys = [None] * world
        dist.all_gather_object(everybodys, sum(losses) / len(losses))
        print(f"[{rank}] epoch {epoch}: {everybodys}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
