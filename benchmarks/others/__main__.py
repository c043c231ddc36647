"""``python -m benchmarks.others [SUITE ...]``: what hangwatch says of healthy jobs, and whether it changes their results.

Each suite runs in parts under ``hangwatch run --on-hang report``. A test that fails there is run again without hangwatch and
counts as changed if it passes then. Every hang that was reported is listed with its bundle, to be looked at by hand. A part that
has a result is not run again: an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree.ElementTree import Element

import msgspec
from defusedxml import ElementTree

from hangwatch.model.incident import HANG_KINDS
from hangwatch.outputs.bundle.bundle import read_document

HERE = Path(__file__).resolve().parent
#: Results, checkouts and bundles.
FOLDER = HERE.parents[1] / "build" / "others"
#: A test may wait for others of the machine, but none of these takes minutes.
TEST_LIMIT_S = 300
#: Without our own configuration, which makes warnings errors.
OPTIONS = ("-q", "-c", os.devnull, "-p", "no:cacheprovider", "-W", "ignore")
#: pytest's own list has another form in suites that set its verbosity.
LISTER = """
import sys, pytest
class Lister:
    def pytest_collection_finish(self, session):
        print(*("test: " + item.nodeid for item in session.items), sep="\\n")
sys.exit(pytest.main(sys.argv[1:], plugins=[Lister()]))
"""


@dataclass(frozen=True)
class Suite:
    """Tests of one project.

    ``package``: whose version is shown. ``tests``: files for pytest, relative to a checkout of the ``repository`` on GitHub in
    ``build/others``, or to this folder. ``part``: how many tests run in one process.
    """

    package: str
    tests: tuple[str, ...]
    repository: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    part: int = 25

    @property
    def folder(self) -> Path:
        """Where pytest runs."""
        return HERE if self.repository is None else FOLDER / self.repository.rpartition("/")[2]


class Part(msgspec.Struct):
    """The results of some tests.

    ``outcomes``: how many tests ``passed``, ``failed`` or were ``skipped`` with hangwatch. ``changed``: those that fail with it
    only. ``hangs``: bundle and summary of each hang that was reported; ``warnings``: of each other incident.
    """

    outcomes: dict[str, int]
    changed: list[str]
    hangs: list[str]
    warnings: list[str]


#: Tests of several ranks ask for as many devices, and on CPUs DeepSpeed counts by this variable.
_DEEPSPEED = {
    "DS_ACCELERATOR": "cpu",
    "LOCAL_SIZE": "4",
    "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "torch_extensions"),
}
_GLOO = {"BACKEND": "gloo", "WORLD_SIZE": "2", "INIT_METHOD": "env://"}
SUITES = {
    "torch-gloo": Suite("torch", ("torch_gloo.py",), environment=_GLOO),
    "torch-rpc": Suite("torch", ("torch_rpc.py",), environment=_GLOO),
    "accelerate": Suite(
        "accelerate", tuple(f"tests/test_{name}.py" for name in ("cpu", "grad_sync", "scheduler", "metrics")),
        "huggingface/accelerate",
    ),
    "torchmetrics": Suite(
        "torchmetrics", ("tests/unittests/bases/test_ddp.py", "tests/unittests/regression/test_mean_error.py"),
        "Lightning-AI/torchmetrics", {"USE_PYTEST_POOL": "1"}, 200,
    ),
    "deepspeed": Suite(
        "deepspeed",
        tuple(f"tests/unit/{name}" for name in ("comm", "v1/zero/test_zero.py", "v1/half_precision", "v1/moe/test_moe.py")),
        "deepspeedai/DeepSpeed", _DEEPSPEED,
    ),
    "lightning": Suite(
        "lightning",
        tuple(f"tests/tests_{part}/strategies/{name}" for part in ("fabric", "pytorch")
              for name in ("launchers", "test_ddp_integration.py")),
        "Lightning-AI/pytorch-lightning",
    ),
}  # fmt: skip


def collect(suite: Suite) -> list[str]:
    """Return the tests of a suite, as pytest names them."""
    if not suite.folder.exists():
        tag = f"v{version(suite.package)}"
        raise SystemExit(
            f"first: git clone --depth 1 --branch {tag} https://github.com/{suite.repository} {suite.folder}"
        )
    command = (sys.executable, "-c", LISTER, *OPTIONS, "--rootdir", str(suite.folder), "--collect-only", *suite.tests)
    found = subprocess.run(
        command, cwd=suite.folder, env=environment_of(suite), text=True, capture_output=True, check=False
    )
    tests = [line.removeprefix("test: ") for line in found.stdout.splitlines() if line.startswith("test: ")]
    if not tests:
        raise SystemExit(
            f"no test of {suite.package} was found in {suite.folder}:\n{found.stdout[-2000:]}{found.stderr[-2000:]}"
        )
    return tests


def environment_of(suite: Suite) -> dict[str, str]:
    """Return the environment in which the tests of a suite run."""
    temporary = FOLDER / "temporary"
    (temporary / "barrier").mkdir(parents=True, exist_ok=True)
    return {**os.environ, "TEMP_DIR": str(temporary), "CI": "", **suite.environment}


def run(suite: Suite, tests: Sequence[str], folder: Path, *, watched: bool) -> dict[str, str]:
    """Run tests, with hangwatch or without, and return the outcome of each that ended, by its name."""
    results = folder / ("with.xml" if watched else "without.xml")
    results.unlink(missing_ok=True)
    watch = (
        str(Path(sys.executable).with_name("hangwatch")), "run", "--on-hang", "report", "--stall-after", "8",
        "--state-dir", str(folder / "state"), "--",
    )  # fmt: skip
    command = (
        *(watch if watched else ()), sys.executable, "-m", "pytest", *OPTIONS, "--rootdir", str(suite.folder),
        "--timeout", str(TEST_LIMIT_S), "--junitxml", str(results), *tests,
    )  # fmt: skip
    with (folder / f"{results.stem}.txt").open("w") as output:
        subprocess.run(command, cwd=suite.folder, env=environment_of(suite), stdout=output, stderr=output, check=False)
    return {
        f"{case.get('classname')}.{case.get('name')}": _outcome(case)
        for case in ElementTree.parse(str(results)).iter("testcase")
    }


def _outcome(case: Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def run_part(suite: Suite, tests: Sequence[str], folder: Path) -> Part:
    """Run some tests with hangwatch, and those that fail once more without it."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = run(suite, tests, folder, watched=True)
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    again = [test for test in tests if any(name.endswith("." + test.rpartition("::")[2]) for name in failed)]
    without = run(suite, again, folder, watched=False) if again else {}
    changed = sorted(name for name in failed if without.get(name) != "failed")
    incidents = [
        read_document(bundle.parent) for bundle in sorted((folder / "state").glob("incidents/*/incident.json"))
    ]
    shown = [(one.verdict.kind in HANG_KINDS, f"{one.id}: {one.verdict.summary}") for one in incidents]
    return Part(
        Counter(outcomes.values()),
        changed,
        [text for hang, text in shown if hang],
        [text for hang, text in shown if not hang],
    )


def main() -> None:
    """Run the suites that are asked for, and print a table of all results there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=", ".join(SUITES))
    for name in parser.parse_args().suites or SUITES:
        suite = SUITES[name]
        tests = collect(suite)
        for at in range(0, len(tests), suite.part):
            result = FOLDER / "results" / name / f"{at}.json"
            if not result.exists():
                print(f"{name}: tests {at + 1} to {min(at + suite.part, len(tests))} of {len(tests)} ...", flush=True)
                part = run_part(suite, tests[at : at + suite.part], FOLDER / "runs" / name / str(at))
                result.parent.mkdir(parents=True, exist_ok=True)
                result.write_bytes(msgspec.json.encode(part))
    print(show(), end="")


def show() -> str:
    """Return the results as a table in Markdown, and below it what has to be looked at."""
    lines = [
        "| tests of | version | passed | fail anyway | skipped | changed | hangs reported | warnings |",
        "|" + "---|" * 8,
    ]
    below = []
    for name, suite in SUITES.items():
        parts = [
            msgspec.json.decode(one.read_bytes(), type=Part)
            for one in sorted((FOLDER / "results" / name).glob("*.json"))
        ]
        if not parts:
            continue
        outcomes = sum((Counter(part.outcomes) for part in parts), Counter[str]())
        changed = [one for part in parts for one in part.changed]
        hangs = [one for part in parts for one in part.hangs]
        warnings = sum(len(part.warnings) for part in parts)
        failed = outcomes["failed"] - len(changed)
        counts = (outcomes["passed"], failed, outcomes["skipped"], len(changed), len(hangs), warnings)
        lines.append(f"| {name} | {version(suite.package)} | {' | '.join(map(str, counts))} |")
        below += [f"{name}: {what}: {one}" for what, of in (("changed", changed), ("hang", hangs)) for one in of]
    return "\n".join([*lines, "", *below, ""])


if __name__ == "__main__":
    main()
