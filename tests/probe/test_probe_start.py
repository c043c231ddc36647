"""The start of Python with the probe's sitecustomize: as if it were not there."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from probe_runs import SITE, Run

from support import LONG_S

REPORT = """
import sys
custom = sys.modules.get("sitecustomize")
print(getattr(custom, "__file__", None), getattr(custom, "MARK", None))
print([entry for entry in sys.path if entry.endswith("site") or entry.endswith("mine")])
"""


def _outputs(run: Run, *arguments: str | Path, site: Path | None = SITE, **env: str) -> tuple[str, str, int]:
    process = run.start(*arguments, env=run.environment(site=site, **env))
    out, err = process.communicate(timeout=LONG_S)
    return out, err, process.returncode


@pytest.mark.parametrize(
    "users",
    [
        "MARK = 7",
        "raise RuntimeError('mine')",
        "import no_such_module",
        "raise SystemExit(5)",
        "import warnings; warnings.warn('hm')",
        None,
    ],
)
def test_users_own_sitecustomize_works_as_without_us(run: Run, users: str | None) -> None:
    """What it defines, prints, raises and exits with is the same with the probe before it on the path, and without."""
    mine = run.scratch / "mine"
    mine.mkdir()
    if users is not None:
        (mine / "sitecustomize.py").write_text(users)
    script = run.write(REPORT)
    with_probe = _outputs(run, script, PYTHONPATH=str(mine))
    without = _outputs(run, script, site=None, PYTHONPATH=str(mine))
    if users == "raise SystemExit(5)":  # Python dies of it with a traceback, in which our frame is one more
        with_probe, without = ((out, err.splitlines()[-1], status) for out, err, status in (with_probe, without))
    assert with_probe == without
    if users == "MARK = 7":
        assert with_probe[0].splitlines()[0] == f"{mine / 'sitecustomize.py'} 7"


def test_probe_waits_for_torch_distributed_and_imports_nothing_before(run: Run) -> None:
    """A Python that does nothing has only the hook: no thread, no torch, no module that it would not have anyway."""
    code = "import sys; print(sorted(sys.modules))"
    out, err, status = _outputs(run, "-c", code)
    plain, _, _ = _outputs(run, "-c", code, site=None)
    assert (err, status) == ("", 0)
    assert set(ast.literal_eval(out)) - set(ast.literal_eval(plain)) == {
        "_hangwatch_probe",
        "_hangwatch_probe.hook",
        "__future__",
        "atexit",
    }
    assert list(run.ranks.iterdir()) == []


def test_isolated_python_has_no_probe_and_no_harm(run: Run) -> None:
    """``python -I`` ignores PYTHONPATH: it runs as ever."""
    out, err, status = _outputs(run, "-I", "-c", "import sys; print('_hangwatch_probe' in sys.modules)", RANK="0")
    assert (out, err, status) == ("False\n", "", 0)


def test_without_run_directory_neither_way_does_anything(run: Run) -> None:
    """No HANGWATCH_RUN_DIR: sitecustomize loads nothing, and the explicit import is a no-op with a working report()."""
    code = """
        import sys
        before = list(sys.meta_path)
        assert "_hangwatch_probe" not in sys.modules
        import hangwatch.probe
        hangwatch.probe.report(loss=1.0)
        print(sys.meta_path == before, "hangwatch.probe.hook" in sys.modules, "torch" in sys.modules)
    """
    env = run.environment(PYTHONPATH=str(SITE.parents[2]))
    del env["HANGWATCH_RUN_DIR"]
    process = run.start(run.write(code), env=env)
    out, err = process.communicate(timeout=LONG_S)
    assert (out, err, process.returncode) == ("True True False\n", "", 0)


def test_broken_probe_leaves_a_note_and_the_program_runs(run: Run) -> None:
    """A probe that cannot even be loaded is a line for the agent, not an error of the job."""
    broken = run.scratch / "probe"
    shutil.copytree(SITE.parent, broken)
    (broken / "__init__.py").write_text("this is no Python\n")
    out, err, status = _outputs(run, "-c", "print('ran')", site=broken / "site")
    assert (out, err, status) == ("ran\n", "", 0)
    (note,) = run.ranks.iterdir()
    assert note.suffix == ".problem"
    assert "could not load the probe" in note.read_text()


def test_old_torch_is_reported_to_the_agent_once_it_is_a_rank(run: Run) -> None:
    """Below torch 2.4 there is no thread and one line; without RANK not even that."""
    package = run.scratch / "mine" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '2.3.1+cu121'\n")
    (package / "distributed" / "__init__.py").write_text("from . import distributed_c10d\n")
    (package / "distributed" / "distributed_c10d.py").write_text("")
    code = "import torch.distributed, threading; print(threading.active_count())"
    env = {"PYTHONPATH": str(package.parent)}
    assert _outputs(run, "-c", code, **env) == ("1\n", "", 0)
    assert list(run.ranks.iterdir()) == []
    assert _outputs(run, "-c", code, RANK="0", **env) == ("1\n", "", 0)
    (note,) = run.ranks.iterdir()
    assert "torch 2.3.1+cu121 is older than 2.4" in note.read_text()
