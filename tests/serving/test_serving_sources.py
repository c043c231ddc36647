"""Serving engines: what their metrics say, and which processes of a node are theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.serving import EnginePart
from hangwatch.serving.sources.metrics import parse_engine
from hangwatch.serving.sources.processes import name_server, read_port
from hangwatch.sources.connections.endpoint import check_engine, parse_engine_url

#: As vLLM 0.29 writes it, shortened: gauges, counters with their time of creation, a histogram, and names that begin alike.
VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 37.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 12.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct",reason="capacity"} 9.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct",reason="deferred"} 3.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 410.0
vllm:prompt_tokens_created{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 1.7e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 1280.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 4.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 1.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 3.0
vllm:iteration_tokens_total_count{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 88.0
vllm:iteration_tokens_total_sum{engine="0",model_name="Qwen/Qwen2.5-0.5B-Instruct"} 1690.0
"""
SGLANG = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="glm",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="glm",tp_rank="1"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="glm",tp_rank="0"} 2.0
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{engine_type="unified",model_name="glm",tp_rank="0"} 118.5
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="glm",tp_rank="0"} 156755.0
sglang:realtime_tokens_total{engine_type="unified",mode="prefill_compute",model_name="glm",tp_rank="0"} 1000.0
"""
TRTLLM = b"""# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="undefined",model_name="nemotron"} 3.0
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{engine_type="undefined",model_name="nemotron"} 0.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="undefined",model_name="nemotron"} 0.25
"""


def test_vllm_is_read_by_its_schedulers() -> None:
    """Requests, tokens, steps and finished requests of each; names that only begin alike do not count."""
    found = parse_engine(VLLM)
    assert found is not None
    assert found.kind == "vllm"
    assert found.parts == {
        "0": EnginePart(37, 12, 1280.0, (1280.0, 410.0, 88.0, 5.0)),
        "1": EnginePart(0, 0, 0, (0, 0, 0, 0)),
    }


def test_ranks_of_sglang_that_say_the_same_count_once() -> None:
    """Each rank of one scheduler may report its requests."""
    found = parse_engine(SGLANG)
    assert found is not None
    assert found.kind == "sglang"
    assert found.parts == {"": EnginePart(5, 2, 157755.0, (157755.0, 118.5))}


def test_tensorrt_llm_counts_no_token_before_a_request_is_finished() -> None:
    """What it uses of its cache moves long before."""
    found = parse_engine(TRTLLM)
    assert found is not None
    assert found.parts == {"": EnginePart(3, 0, None, (0.25,))}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>login</html>",
        b'{"iter": 3}',
        b"node_load1 0.5\n",
        b"vllm:num_requests_running 1\n",
        b"vllm:num_requests_running{ 1\nvllm:num_requests_waiting 0\n",
        VLLM[:300],
    ],
)
def test_what_is_no_engine_is_none(data: bytes) -> None:
    """Nothing, a page, other metrics, half of an answer."""
    assert parse_engine(data) is None


@given(st.binary(max_size=400), st.integers(0, len(VLLM)))
def test_no_answer_raises(noise: bytes, place: int) -> None:
    """Truncated and with noise in it."""
    parse_engine(VLLM[:place])
    parse_engine(VLLM[:place] + noise + VLLM[place:])


def test_requests_are_counts_whatever_is_said() -> None:
    """Not a number, infinite, negative."""
    for value in (b"NaN", b"+Inf", b"-3"):
        found = parse_engine(b"vllm:num_requests_running " + value + b"\nvllm:num_requests_waiting 1e300\n")
        assert found is not None
        assert found.parts[""].running == 0
        assert found.parts[""].waiting > 0


@pytest.mark.parametrize(
    ("arguments", "server", "port"),
    [
        (("/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "Qwen/Qwen3-8B"), "vllm", 8000),
        (("vllm", "serve", "--port", "9000"), "vllm", 9000),
        (("python3", "-m", "vllm.entrypoints.openai.api_server", "--port=8001"), "vllm", 8001),
        (("python", "-m", "sglang.launch_server", "--model-path", "glm"), "sglang", 30000),
        (("python3", "/usr/local/bin/trtllm-serve", "nemotron"), "trtllm-serve", 8000),
    ],
)
def test_a_server_is_known_by_its_command_line(arguments: tuple[str, ...], server: str, port: int) -> None:
    """With the port that it names, or its default one."""
    assert name_server(arguments) == server
    assert read_port(arguments, server) == port


@pytest.mark.parametrize(
    "arguments", [("python", "train.py", "serve"), ("vllm", "bench"), ("python", "-m", "http.server"), ()]
)
def test_other_command_lines_start_no_server(arguments: tuple[str, ...]) -> None:
    """They are not asked anything."""
    assert name_server(arguments) is None


def test_an_engine_is_named_by_its_address() -> None:
    """With or without a scheme; what is no address, or of another node, is refused in one line."""
    assert parse_engine_url("127.0.0.1:8000") == "http://127.0.0.1:8000"
    assert check_engine("http://localhost:8000/metrics") == "http://localhost:8000/metrics"
    assert check_engine("http://[::1]:8000/") == "http://[::1]:8000"
    for wrong in ("", "ftp://localhost", "http://user:secret@localhost", "http://localhost:x", "http://192.0.2.1:8000"):
        with pytest.raises(ValueError, match=r"for example|run an agent on its node"):
            check_engine(wrong)
