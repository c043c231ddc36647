"""Headlines by a tiny BART whose layers are sharded by FSDP2, and a score of them."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import BartConfig, BartForConditionalGeneration


def build() -> BartForConditionalGeneration:
    """Random weights."""
    config = BartConfig(
        vocab_size=120,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=128,
        forced_eos_token_id=None,
        eos_token_id=None,
        decoder_start_token_id=2,
    )
    torch.manual_seed(0)
    model = BartForConditionalGeneration(config)
    for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
        fully_shard(layer, reshard_after_forward=True)
    return model


def articles(rank: int) -> list[torch.Tensor]:
    """Those of this rank; the last one of rank 1 is a short notice."""
    generator = torch.Generator().manual_seed(0)
    lengths = [40, 60, 48, 24 if rank == 1 else 72]
    return [torch.randint(4, 120, (1, length), generator=generator) for length in lengths]


def main() -> None:
    """Train a little, then write headlines a third as long as the article."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        tokens = torch.randint(4, 120, (2, 20))
        model(input_ids=tokens, labels=torch.randint(4, 120, (2, 6))).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    lengths = torch.zeros(2)
    for article in articles(rank):
        with torch.no_grad():
            headline = model.generate(article, max_new_tokens=article.shape[1] // 3, do_sample=False, num_beams=1)
        lengths += torch.tensor([float(headline.shape[1]), 1.0])
    dist.reduce(lengths, dst=0)
    if rank == 0:
        print(f"mean length {lengths[0] / lengths[1]:.1f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
