"""The metrics of serving engines, as they expose them for Prometheus. Pure; may import the model and prometheus_client.

Read from the sources, by name:

- vLLM 0.10 (commit 005a810b), ``PrometheusStatLogger`` of ``vllm/v1/metrics/loggers.py``, and answers of 0.29:
  ``vllm:num_requests_running``,
  ``vllm:num_requests_waiting``, ``vllm:prompt_tokens_total``, ``vllm:generation_tokens_total``, ``vllm:request_success_total``,
  ``vllm:iteration_tokens_total`` (a histogram: one observation a step), ``vllm:kv_cache_usage_perc`` (before 0.9
  ``vllm:gpu_cache_usage_perc``); the label ``engine`` is the scheduler's number in data parallelism. The gauges are set when the
  scheduler reports, so of an engine whose core is gone they stay as they were.
- SGLang 0.4 and 0.5, with ``--enable-metrics``: ``SchedulerMetricsCollector`` and ``TokenizerMetricsCollector`` of
  ``python/sglang/srt/metrics/collector.py``, now ``python/sglang/srt/observability/metrics_collector.py`` (commit 016d8605):
  ``sglang:num_running_reqs``, ``sglang:num_queue_reqs``, ``sglang:prompt_tokens_total``, ``sglang:generation_tokens_total`` (of
  finished requests in old versions), ``sglang:realtime_tokens_total``, ``sglang:num_requests_total``, ``sglang:token_usage``,
  ``sglang:num_used_tokens``, ``sglang:gen_throughput``. Ranks of one scheduler may each report the same (``tp_rank``), and
  ``dp_rank`` is the scheduler's number.
- TensorRT-LLM of 2026 (commit 050f80de), ``MetricsCollector`` of ``tensorrt_llm/metrics/collector.py``, served
  at ``/prometheus/metrics``:
  ``trtllm_num_requests_running``, ``trtllm_num_requests_waiting``, ``trtllm_num_requests_completed_total``,
  ``trtllm_prompt_tokens_total`` and ``trtllm_generation_tokens_total`` (of finished requests),
  ``trtllm_request_success_total``, ``trtllm_iteration_latency_seconds``, ``trtllm_kv_cache_utilization``,
  ``trtllm_kv_cache_used_blocks``, ``trtllm_total_context_tokens``: the gauges are of its
  last iteration. Versions without the first two say nothing of demand.

A value is a mark of progress where it changes as the engine goes on, be it a counter or a gauge of the last step: a long answer
moves the tokens or the use of the cache long before it is finished.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hangwatch.model.serving import EngineKind, EnginePart, EngineReading

#: No engine has more schedulers on a node, nor waits for more requests than this.
_PARTS_LIMIT = 64
_REQUESTS_LIMIT = 1 << 31


@dataclass(frozen=True)
class _Vocabulary:
    """The metric names of one kind of engine.

    ``part``: the label that numbers its schedulers. ``ranks_repeat``: each of its ranks reports the same, so the
    largest value counts, not the sum.
    """

    kind: EngineKind
    running: str
    waiting: str
    tokens: tuple[str, ...]
    others: tuple[str, ...]
    part: str = ""
    ranks_repeat: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.running, self.waiting, *self.tokens, *self.others)


_VOCABULARIES = (
    _Vocabulary(
        "vllm", "vllm:num_requests_running", "vllm:num_requests_waiting",
        tokens=("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
        others=("vllm:iteration_tokens_total_count", "vllm:request_success_total", "vllm:kv_cache_usage_perc",
                "vllm:gpu_cache_usage_perc"),
        part="engine",
    ),
    _Vocabulary(
        "sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs",
        tokens=("sglang:generation_tokens_total", "sglang:prompt_tokens_total", "sglang:realtime_tokens_total"),
        others=("sglang:num_requests_total", "sglang:token_usage", "sglang:num_used_tokens", "sglang:gen_throughput"),
        part="dp_rank",
        ranks_repeat=True,
    ),
    _Vocabulary(
        "tensorrt-llm", "trtllm_num_requests_running", "trtllm_num_requests_waiting",
        tokens=("trtllm_generation_tokens_total", "trtllm_prompt_tokens_total"),
        others=("trtllm_num_requests_completed_total", "trtllm_request_success_total", "trtllm_iteration_latency_seconds",
                "trtllm_kv_cache_utilization", "trtllm_kv_cache_used_blocks", "trtllm_total_context_tokens"),
    ),
)  # fmt: skip
#: Only these lines are parsed: of a few hundred kilobytes of histograms the rest would cost the agent a tenth of a second.
_WANTED = tuple(name.encode() for vocabulary in _VOCABULARIES for name in vocabulary.names)


def parse_engine(data: bytes) -> EngineReading | None:
    """Return what a serving engine's exposition says; None if it is no exposition of a known engine."""
    lines = (line for line in data.splitlines() if line.startswith(_WANTED))
    text = b"\n".join(lines).decode(errors="replace") + "\n"
    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(sample)
    except (ValueError, IndexError, KeyError):  # raised by the parser for lines of another format
        return None
    found = (v for v in _VOCABULARIES if v.running in samples and v.waiting in samples)
    vocabulary = next(found, None)
    return _read(vocabulary, samples) if vocabulary is not None else None


def _read(vocabulary: _Vocabulary, samples: dict[str, list[Sample]]) -> EngineReading | None:
    gauges = (*samples[vocabulary.running], *samples[vocabulary.waiting])
    names = sorted({sample.labels.get(vocabulary.part, "") for sample in gauges})[:_PARTS_LIMIT]
    parts = {}
    for name in names:

        def values(wanted: str, name: str = name) -> list[float]:
            # A value without this label counts for all schedulers.
            own = (s for s in samples.get(wanted, ()) if s.labels.get(vocabulary.part, name) == name)
            return [s.value for s in own if math.isfinite(s.value)]

        count = max if vocabulary.ranks_repeat else sum
        running, waiting = (
            _requests(count(values(wanted) or [0.0])) for wanted in (vocabulary.running, vocabulary.waiting)
        )
        tokens = [sum(values(wanted)) for wanted in vocabulary.tokens if wanted in samples]
        others = [sum(values(wanted)) for wanted in vocabulary.others if wanted in samples]
        parts[name] = EnginePart(running, waiting, tokens[0] if tokens else None, (*tokens, *others))
    return EngineReading(vocabulary.kind, parts)


def _requests(value: float) -> int:
    return int(min(max(value, 0.0), _REQUESTS_LIMIT))
