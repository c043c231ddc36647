"""Commands that the documentation shows: those of hangwatch parse as they stand, and a test runs each or a reason is given;
those of make exist; others are listed here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import msgspec
import pytest

from hangwatch.cli.main import COMMANDS, app
from shown import PAGES, ROOT, SHOWN, Shown, commands_of, shown_on

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
#: Programs of others -> why what the documentation says of them is not checked here.
OTHERS = {
    "amtool": "run on the same files by tests/deploy/test_deploy_prometheus.py",
    "docker": "not on machines that run the tests; its image and its files are checked in tests/deploy",
    "eval": "the shell's own; what it is given is looked at",
    "exit": "the shell's own",
    "true": "the shell's own",
    "export": "the shell's own",
    "echo": "the shell's own",
    "gh": "needs GitHub",
    "git": "a tag of the repository itself; its version is checked by tests/project/test_project_release.py",
    "grep": "every system has it",
    "helm": "rendered by its own engine in tests/deploy/test_deploy_chart.py",
    "install": "copies files of ours to places that root owns",
    "jq": "not needed by anything of ours; the fields that it selects are those of the events and the incident",
    "kubectl": "needs a cluster",
    "openssl": "makes random bytes",
    "pip": "what it installs is checked by make, make matrix and tests/project/test_project_package.py",
    "promtool": "run on the same files by tests/deploy/test_deploy_prometheus.py",
    "pytest": "what this is",
    "python": "programs of the reader, and ours that tests start",
    "python3": "makes an environment, as the Makefile does",
    "srun": "needs a cluster; tests/deploy/test_deploy_slurm_cluster.py starts a small one",
    "systemctl": "needs systemd as the first process; tests/deploy/test_deploy_systemd.py checks the unit",
    "systemd-sysusers": "changes the users of the system; tests/deploy/test_deploy_systemd.py checks the file",
    "systemd-tmpfiles": "changes folders of the system; tests/deploy/test_deploy_systemd.py checks the file",
    "torchrun": "PyTorch's; end-to-end tests start it",
    "tr": "every system has it",
    "uv": "renews the pins, and runs a tool that lists packages, by hand and rarely",
}
_NOW, _FLEET = "tests/e2e/test_e2e_pages.py::test_my_job_hangs_now", "tests/e2e/test_e2e_exchange_auto.py"
_AGENT = "tests/e2e/test_e2e_commands.py::test_the_agent_finds_the_hang_of_a_plain_launch"
_LAUNCHERS = "tests/e2e/test_e2e_restart.py::test_other_launchers_are_run_again"
_CI = "tests/e2e/test_e2e_pages.py::test_the_lines_for_any_ci"
#: What a command of hangwatch is marked with that no test runs.
NOT_RUN = "not run: "
#: Commands of hangwatch in blocks -> the test that runs them, as they stand or with a program and ranks of its own, or a mark.
RUN_BY = {
    "run -- torchrun --nproc-per-node 8 train.py": "tests/e2e/test_e2e_scenarios.py::test_a_hang_is_named_as_promised",
    "run -- deepspeed --num_gpus 8 train.py --deepspeed ds_config.json": _LAUNCHERS,
    "run -- accelerate launch --num_processes 8 train.py": _LAUNCHERS,
    "run -- torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-id run42 --rdzv-endpoint node0:29500 train.py":
        f"{_FLEET}::test_hosts_join_by_themselves",
    "run -- vllm serve MODEL --tensor-parallel-size 2":
        f"{NOT_RUN}vLLM is not in the suite; tests/e2e/test_e2e_serving.py runs a stand-in, docs/status.md has what was seen",
    "run --on-hang stop -- torchrun --nproc-per-node 2 train.py": _NOW,
    "run --on-hang restart -- torchrun --standalone --max-restarts 2 --nproc-per-node 8 train.py":
        "tests/e2e/test_e2e_restart.py::test_a_proven_deadlock_that_comes_again_stops_the_job",
    "run --on-hang raise -- torchrun --nproc-per-node 8 train.py":
        "tests/e2e/test_e2e_raise.py::test_an_error_of_the_wait_itself_carries_the_verdict",
    "run --on-hang stop --events 3 -- torchrun --standalone --nproc-per-node 2 train.py":
        "tests/e2e/test_e2e_events.py::test_a_hang_that_is_stopped",
    "run --state-dir out --on-hang stop -- torchrun --nproc-per-node 2 tests/all_reduce.py": _CI,
    "report --state-dir out --format md": _CI,
    "report": _NOW,
    "report --format html": _NOW,
    "report latest --format github": _NOW,
    "env": "tests/e2e/test_e2e_commands.py::test_env_prints_what_a_shell_can_read",
    "agent": _AGENT,
    "agent --engine http://127.0.0.1:8000": "tests/e2e/test_e2e_alerting.py::test_what_is_documented_is_what_is_served",
    "dump": _NOW,
    "check-config /etc/hangwatch/hangwatch.toml":
        "tests/e2e/test_e2e_daemon.py::test_a_configuration_is_checked_before_it_is_used",
    "doctor": _NOW,
    "diagnose stacks": _NOW,
    "diagnose train.log": "tests/e2e/test_e2e_training_logs.py::test_the_verdict_on_a_log_is_for_people",
    "diagnose output/ --json": "tests/e2e/test_e2e_training_logs.py::test_a_folder_gives_its_newest_run",
}  # fmt: skip
PROJECT = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]


#: `hangwatch ...` and `make ...` in the text itself: what stands for something may be left open, names may not.
_QUOTED = re.compile(r"`(hangwatch|make) ([^`]+)`")


def of_ours(name: str) -> click.Command:
    """A command as the program itself builds it."""
    assert name in COMMANDS, f"no such command: {name}"
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


def check(words: tuple[str, ...]) -> None:
    """Parse the words after ``hangwatch`` without running anything; raises what a user would read."""
    name, *rest = words
    of_ours(name).make_context(name, list(rest))


def check_make(words: tuple[str, ...]) -> None:
    """Targets and variables after ``make``."""
    for word in words:
        variable, is_set, _ = word.partition("=")
        assert variable in (VARIABLES if is_set else TARGETS), f"the Makefile has no {variable}"


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.tool == "hangwatch"], ids=str)
def test_commands_of_hangwatch_parse(shown: Shown) -> None:
    """The subcommand, every option and every value are ones that the program takes."""
    check(shown.words[1:])


def test_every_command_of_hangwatch_is_run_by_a_test_or_marked() -> None:
    """None is without an entry, no entry is of a command that no page shows, and the tests are there."""
    shown = {" ".join(one.words[1:]) for one in SHOWN if one.tool == "hangwatch"}
    assert shown == RUN_BY.keys(), shown ^ RUN_BY.keys()
    for command, by in RUN_BY.items():
        if not by.startswith(NOT_RUN):
            file, _, name = by.partition("::")
            assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (command, by)


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.tool == "make"], ids=str)
def test_commands_of_make_exist(shown: Shown) -> None:
    """The target is in the Makefile, and so are the variables."""
    check_make(shown.words[1:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_commands_name_exist(path: Path) -> None:
    """Those of ours that are shipped; the others are the reader's."""
    for shown in shown_on(path):
        for word in shown.words:
            if word.startswith(("deploy/", "systemd/", "docs/")):
                assert list(ROOT.glob(word)), str(shown)


#: What pip is told to install, in blocks, in the text, and in what the program says: quoted words, or one.
_PIP = re.compile(r"\bpip install (?!--group)(?:-\S+ )*((?:'[^']+' ?)+|[a-z.][\w.-]*)")


def pip_is_told(text: str) -> list[str]:
    """The requirements."""
    return [word for words in _PIP.findall(text) for word in words.replace("'", "").split()]


def is_promised(requirement: str) -> bool:
    """This folder, with extras that there are; or what pyproject.toml requires, with the same version or none."""
    extras = PROJECT["optional-dependencies"]
    required = {one for some in (PROJECT["dependencies"], *extras.values()) for one in some}
    if (ours := re.fullmatch(r"\.(?:\[([a-z,]+)\])?", requirement)) is not None:
        return ours[1] is None or set(ours[1].split(",")) <= extras.keys()
    return requirement in required | {re.split(r"[>=;]", one)[0] for one in required}


def test_pip_is_told_to_install_what_is_ours_or_required() -> None:
    """hangwatch is on no index: whoever registers the name would be installed. Extras come from a clone or a wheel.

    Messages name the library itself, as it is required in pyproject.toml.
    """
    files = [
        path for folder in ("watchdog", "systemd", "deploy") for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    found = []
    for path in (*PAGES, *(path for path in files if path.suffix != ".pyc")):
        text = path.read_text()
        assert not re.search(r"\bhangwatch\[[a-z]+[,\]]", text), path
        found += [(path, word) for word in pip_is_told(text)]
    assert len(found) > 20
    assert [one for one in found if not is_promised(one[1])] == []


@pytest.mark.parametrize(
    "wrong", ["'hangwatch[mcp]'", "hangwatch", "'mcp>=1'", "'mcp>=2.3' 'apprise>=1'", "'.[nosuch]'"]
)
def test_a_wrong_promise_would_be_seen(wrong: str) -> None:
    """Planted faults: our own name, another version, an extra that there is not."""
    told = pip_is_told(f"run: pip install {wrong}")
    assert told
    assert not all(map(is_promised, told))


def text_of(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_of_ours_that_the_text_runs_exist(path: Path) -> None:
    """`python benchmarks/...`, `python -m scenarios`: the file or the package is in the repository."""
    for quoted in re.findall(r"`([^`]+)`", text_of(path)):
        for is_module, name in re.findall(r"\bpython\s+(-m )?([\w.]+(?:/[\w./]+)*)", quoted):
            module = name.replace(".", "/")
            places = (ROOT / module, ROOT / "tests" / module) if is_module else (ROOT / name,)
            known = name in {"train.py", "hangwatch", "sglang.launch_server"}
            assert known or any(place.exists() or place.with_suffix(".py").exists() for place in places), name


def test_other_programs_are_listed_with_a_reason() -> None:
    """And nothing is listed that no page shows."""
    tools = {one.tool for one in SHOWN} - {"hangwatch", "make"}
    assert tools == OTHERS.keys(), [str(one) for one in SHOWN if one.tool in tools - OTHERS.keys()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_text_exist(path: Path) -> None:
    """Between backquotes ``CMD`` and the like stand for something: the subcommand and the options are looked up by name."""
    for tool, rest in _QUOTED.findall(text_of(path)):
        words = rest.replace("\\|", "|").split()
        if tool == "make":
            check_make(tuple(word for word in shlex.split(rest) if word != "..."))
        elif words[0] not in {"...", "--version", "--help"}:
            ours = words[: words.index("--")] if "--" in words else words
            known = {
                option for parameter in of_ours(words[0]).params for option in parameter.opts + parameter.secondary_opts
            }
            unknown = {word.partition("=")[0] for word in ours if word.startswith("--")} - known - {"--help"}
            assert not unknown, f"`hangwatch {rest}`: {unknown}"


@pytest.mark.parametrize(
    "wrong",
    [
        "hangwatch dumps", "hangwatch dump --pids 1", "hangwatch report --format pdf", "hangwatch diagnose",
        'x=1 eval "$(hangwatch enw)"', "true && hangwatch run --on-hung stop -- python train.py", "make demos",
        "make demo ONYL=x",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_found(wrong: str) -> None:
    """Planted faults: a subcommand, an option, a value, an argument that lacks, a target, a variable."""
    found = [words for words in commands_of(wrong) if words[0] in {"hangwatch", "make"}]
    (words,) = found
    with pytest.raises((AssertionError, click.UsageError)):
        (check if words[0] == "hangwatch" else check_make)(tuple(words[1:]))
