"""The files of the image: what they copy is there, and the copied probe works without hangwatch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from support import SOURCE_ROOT

DOCKER = Path(__file__).resolve().parents[2] / "deploy" / "docker"


def test_the_image_leaves_root_and_holds_what_is_copied() -> None:
    """The Dockerfile ends as a user that is not root; what it copies is there, and the ignore file lets it through."""
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["65532:65532"]
    root = DOCKER.parents[1]
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((root / name).exists() for name in copied)
    allowed = {
        line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "watchdog",
        "docs/causes",
        "deploy/docker/copy-probe.sh",
    } == allowed
    assert all((root / name).exists() for name in allowed)


@pytest.mark.usefixtures("real")
def test_a_copied_probe_is_loaded_where_hangwatch_is_not(tmp_path: Path) -> None:
    """What the init container leaves behind is enough for a Python without hangwatch, and its run directory is usable."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([DOCKER / "copy-probe.sh", tmp_path], check=True, env={"PATH": path, "PYTHONPATH": str(SOURCE_ROOT)})
    code = "import sys; print('_hangwatch_probe' in sys.modules, 'hangwatch' in sys.modules)"
    reported = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.main(); {code}"],
        env={"PYTHONPATH": str(tmp_path / "probe/site"), "HANGWATCH_RUN_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert reported.stdout.split() == ["True", "False"]
    assert list((tmp_path / "run" / "ranks").iterdir()) == [], "the probe has left no complaint"


@pytest.mark.usefixtures("real", "long")
def test_every_requirement_of_the_image_has_a_build_for_arm64(tmp_path: Path) -> None:
    """pip finds wheels of all pinned versions for the image's Python: the slim base image has no compiler."""
    root, dockerfile = DOCKER.parents[1], (DOCKER / "Dockerfile").read_text()
    project = msgspec.toml.decode((root / "pyproject.toml").read_bytes())["project"]
    ((python, extras),) = re.findall(r"FROM python:([\d.]+)-slim AS build.*?/src\[(.*?)\]", dockerfile, re.DOTALL)
    wanted = [
        *project["dependencies"],
        *(one for name in extras.split(",") for one in project["optional-dependencies"][name]),
    ]
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report=-",
            f"--target={tmp_path}", "--platform=manylinux2014_aarch64", f"--python-version={python}",
            "--only-binary=:all:", f"--constraint={root / 'constraints.txt'}", *wanted,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {one["metadata"]["name"]: one["download_info"]["url"] for one in json.loads(done.stdout)["install"]}
    assert all(found[name].endswith("aarch64.whl") for name in ("aiohttp", "msgspec", "psutil", "py-spy"))
