"""Images and containers by Debian's buildah, podman and runc, in a storage of their own, and a stand-in for the base image.

The base stands in for ``python:3.12-slim``, for which no registry is asked: what this machine has of a small Debian, and in
``/usr/local`` the Python that runs the tests, which has to be one built from source, as the public image's is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Where Debian has runc.
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
_TOOLS = ("buildah", "podman", "runc")
#: For a whole build; it bounds a failure and no success.
_LIMIT_S = 900.0
#: What the Python of the base is linked against, and PyTorch.
_LIBRARIES = (
    "libbz2-1.0", "libffi8", "liblzma5", "libncursesw6", "libreadline8", "libsqlite3-0", "libssl3", "libstdc++6",
)  # fmt: skip
#: What a slim image leaves out of ``/usr/share``.
_LEFT_OUT = re.compile(r"/usr/share/(doc|info|lintian|locale|man)/")
_BASE = """
FROM scratch
COPY debian /
COPY python /usr/local
RUN ldconfig && python3 -m ensurepip && ln -s pip3 /usr/local/bin/pip
"""
#: podman as root asks for more than whoever has no CAP_SYS_RESOURCE may have, and for systemd's timers.
_MODEST = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--no-healthcheck")


def find_missing() -> str:
    """The tools that this machine does not have, as Debian calls their packages."""
    return " ".join(tool for tool in _TOOLS if shutil.which(tool, path=_PATH) is None)


@dataclass(frozen=True)
class Containers:
    """A storage of images and containers below ``folder``."""

    folder: Path

    @property
    def _storage(self) -> tuple[str, ...]:
        return f"--root={self.folder / 'root'}", f"--runroot={self.folder / 'run'}"

    def build(self, dockerfile: Path, tag: str, context: Path, *options: str) -> None:
        """Run all steps of a Dockerfile, without a network and without a registry."""
        fixed = ("--runtime=runc", "--pull=never", "--network=none", "--format=docker")
        _call(
            "buildah", *self._storage, "build", *fixed, *options, f"--file={dockerfile}", f"--tag={tag}", str(context)
        )

    def podman(self, *words: str) -> str:
        """The output of a command of podman's."""
        fixed = ("--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none")
        return _call("podman", *self._storage, *fixed, *words)

    def run(self, *words: str, network: str = "none") -> str:
        """``podman run``."""
        return self.podman("run", *_MODEST, f"--network={network}", *words)


@contextmanager
def own_storage() -> Iterator[Containers]:
    """A storage that is gone in the end, with all containers in it. Its sockets have to have short names."""
    containers = Containers(Path(tempfile.mkdtemp(prefix="hw-image-", dir="/tmp")))
    try:
        yield containers
    finally:
        for container in containers.podman("ps", "--all", "--quiet").split():
            # One by one: podman removes all at once, and then a container before those that share its namespace.
            containers.podman("rm", "--force", "--ignore", "--time=0", "--depend", container)
        containers.podman("rmi", "--all", "--force")
        containers.podman("volume", "rm", "--all", "--force")
        shutil.rmtree(containers.folder)


def make_base(containers: Containers, tag: str) -> None:
    """Build the stand-in under the name of the public image."""
    context = containers.folder / "base"
    context.mkdir()
    _copy_debian(context / "debian")
    name, base = f"python{sys.version_info[0]}.{sys.version_info[1]}", Path(sys.base_prefix)
    to = context / "python"
    (to / "bin").mkdir(parents=True)
    shutil.copy2(base / "bin" / name, to / "bin")
    for link in ("python", "python3"):
        (to / "bin" / link).symlink_to(name)
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "config-*")
    shutil.copytree(base / "lib" / name, to / "lib" / name, symlinks=True, ignore=left_out)
    for library in base.glob("lib/libpython3*.so*"):
        shutil.copy2(library, to / "lib", follow_symlinks=False)
    (context / "Dockerfile").write_text(_BASE)
    containers.build(context / "Dockerfile", tag, context, "--layers=false")


def _find_packages() -> set[str]:
    """Names of the packages that every Debian has, of the libraries, and of all on which they depend, as they are here."""
    shown = _call("dpkg-query", "--show", "--showformat=${Package}\t${Priority}\t${Pre-Depends}, ${Depends}\n")
    lines = [line.split("\t") for line in shown.splitlines()]
    needs = {name: re.findall(r"(?:^|[,|]) *([a-z0-9][a-z0-9+.-]+)", depends) for name, _, depends in lines}
    left = [*_LIBRARIES, *(name for name, priority, _ in lines if priority == "required")]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name in needs and name not in found:
            found.add(name)
            left += needs[name]
    return found


def _copy_debian(to: Path) -> None:
    """Copy a small Debian: the files of its packages, with the users and groups that it begins with."""
    to.mkdir()
    for link in (Path("/", name) for name in ("bin", "lib", "lib64", "sbin")):
        if link.is_symlink():
            (to / link.name).symlink_to(link.readlink())
    listed = _call("dpkg-query", "--listfiles", *sorted(_find_packages())).splitlines()
    for path in sorted({Path(line) for line in listed if line.startswith("/") and not _LEFT_OUT.match(line)}):
        source = path.parent.resolve() / path.name
        copy = to / source.relative_to("/")
        if os.path.lexists(copy) or not os.path.lexists(source):
            continue
        if source.is_dir() and not source.is_symlink():
            copy.mkdir(parents=True)
            shutil.copymode(source, copy)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    for name in ("passwd", "group"):
        shutil.copy2(to / "usr" / "share" / "base-passwd" / f"{name}.master", to / "etc" / name)


def fetch_packages(folder: Path, *wanted: str) -> tuple[str, ...]:
    """Download what pip will ask for; returns buildah's options with which pip finds it in a build without a network."""
    packages, settings = folder / "packages", folder / "pip.conf"
    pins = str(REPOSITORY / "constraints.txt")
    _call(sys.executable, "-m", "pip", "download", "--quiet", f"--dest={packages}", f"--constraint={pins}", *wanted)
    settings.write_text("[global]\nno-index = true\nfind-links = /packages\n")
    return f"--volume={packages}:/packages:ro", f"--volume={settings}:/etc/pip.conf:ro"


def site_packages() -> Path:
    """Where the PyTorch that runs the tests is, with the packages beside it."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


def _call(*command: str) -> str:
    environment = {**os.environ, "PATH": _PATH}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_LIMIT_S, cwd=REPOSITORY, env=environment
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    )
    return done.stdout
