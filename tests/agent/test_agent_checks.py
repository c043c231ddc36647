"""What doctor says of machines that cannot be had here: every complaint has a repair of one line."""

from __future__ import annotations

import pytest

from hangwatch.doctor.check import Check
from hangwatch.doctor.exchange import check_exchange, judge_redis, judge_store
from hangwatch.doctor.node import (
    check_clock,
    check_proc,
    check_ptrace,
    judge_clock,
    judge_probe,
    judge_proc,
    judge_ptrace,
    judge_recorder,
    judge_torch,
)

ALL, NONE = "CapEff:\t000001ffffffffff\n", "Name:\tx\nCapEff:\t00000000a80425fb\n"
PROC = "22 27 0:21 / /proc rw,nosuid - proc proc rw{}\n30 27 0:5 / /dev rw - devtmpfs none rw"
RANKS = {101: 0, 102: 1, 103: 2}


@pytest.mark.parametrize(
    ("check", "state", "says", "repair"),
    [
        (judge_ptrace(ALL, "1", 1000), "ok", "CAP_SYS_PTRACE", ""),
        (judge_ptrace(NONE, "0", 1000), "ok", "this user", ""),
        (judge_ptrace(NONE, "", 1000), "ok", "this user", ""),
        (judge_ptrace(NONE, "1\n", 1000), "failed", "ptrace_scope is 1", "sysctl"),
        (judge_ptrace(NONE, "3", 1000), "failed", "ptrace_scope is 3", "reboot"),
        (judge_ptrace(NONE, "0", 0), "warning", "root without", "--cap-add=SYS_PTRACE"),
        (judge_proc(PROC.format("")), "ok", "all", ""),
        (judge_proc(PROC.format(",hidepid=0")), "ok", "all", ""),
        (judge_proc(PROC.format(",hidepid=2")), "warning", "hidepid=2", "remount,hidepid=0"),
        (judge_proc(PROC.format(",hidepid=invisible")), "warning", "hidepid=invisible", "CAP_SYS_PTRACE"),
        (judge_clock(0, 0x2001), "ok", "synchronized", ""),
        (judge_clock(5, 0), "warning", "not synchronized", "timedatectl"),
        (judge_clock(0, 0x40), "warning", "not synchronized", "timedatectl"),
        (judge_clock(-1, 0), "ok", "permission denied", ""),
        (judge_probe(RANKS, [101, 102, 103]), "ok", "all 3", ""),
        (judge_probe(RANKS, [102]), "warning", "ranks 0, 2", "hangwatch run"),
        (judge_recorder(RANKS, {101: {}, 102: {"TORCH_FR_BUFFER_SIZE": "2000"}}), "ok", "enabled", ""),
        (judge_recorder(RANKS, {101: {}, 102: {}}, {101}), "ok", "TORCH_NCCL_ENABLE_TIMING=1", ""),
        (judge_recorder(RANKS, {101: {"TORCH_NCCL_ENABLE_TIMING": "1"}}, {101}), "ok", "enabled", ""),
        (judge_recorder(RANKS, {102: {"TORCH_FR_BUFFER_SIZE": "0"}}), "warning", "rank 1", "unset TORCH_FR_BUFFER_SIZE"),
        (judge_torch({101: "2.13.0+cpu", 102: "2.13.0+cpu"}), "ok", "2.13.0+cpu", ""),
        (judge_torch({101: "2.10.0", 102: "2.9.1"}), "ok", "hangs on Gloo are proven from torch 2.10 on", ""),
        (judge_store(29717, {"n0": (False, "timed out")}), "failed", "n0:29717", "open its port 29717"),
        (check_exchange("local"), "ok", "local", ""),
        (check_exchange("carrier-pigeon"), "failed", "is not valid", "correct --exchange"),
        (check_exchange("http://:s3cret@h:1"), "failed", "http://h:1 is not valid", "correct --exchange"),
        (check_exchange("redis://:s3c/ret@h:1"), "failed", "redis://h:1 is not a valid Redis URL", "correct --exchange"),
        (judge_redis("redis://h:1", "Redis: Connection refused"), "failed", "refused", "redis-cli -u redis://h:1 ping"),
        (judge_redis("redis://h:1", "Redis: Authentication required."), "failed", "required", "redis://:PASSWORD@"),
        (judge_redis("redis://h:1", "Redis: No permissions to access a key"), "failed", "a key", "ACL SETUSER"),
        (judge_redis("redis://h:1", "Redis: HELLO must be already authenticated"), "failed", "HELLO", "PASSWORD"),
        (judge_redis("rediss://h:1", "Redis: [SSL] record layer failure"), "failed", "SSL", "redis:// for one without"),
        (judge_store(29717, {"n0": (False, "")}), "ok", "n0:29717 is reachable", ""),
        (judge_store(29717, {"n0": (True, "refused")}), "ok", "will serve the store on port 29717", ""),
        (judge_store(29717, {"n0": (False, "refused")}), "failed", "n0:29717", "run hangwatch on n0"),
    ],
)  # fmt: skip
def test_each_machine_is_judged(check: Check, state: str, says: str, repair: str) -> None:
    """State, reason and repair; what is well needs none, what is not has one line."""
    assert check.state == state
    assert says in check.says
    assert repair in check.repair
    assert bool(check.repair) == (state != "ok")
    assert "\n" not in check.says + check.repair


@pytest.mark.usefixtures("real")
def test_this_machine_is_well() -> None:
    """Where the suite runs, everything it takes to read stacks is there."""
    states = {check.name: check.state for check in (check_ptrace(), check_proc())}
    assert set(states.values()) == {"ok"}, states
    assert check_clock().name == "clock"
