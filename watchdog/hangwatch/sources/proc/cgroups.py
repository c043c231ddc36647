"""Whether a process's cgroup is frozen. May import the standard library only.

Formats: cgroups(7) v1 ``freezer.state``; v2 ``cgroup.events`` (Documentation/admin-guide/cgroup-v2.rst, Linux 5.2 on).
"""

from __future__ import annotations

from hangwatch.sources.proc.files import read_small

_V1_ROOTS = ("/sys/fs/cgroup/freezer",)
_V2_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def parse_cgroups(data: bytes) -> dict[str, str]:
    """Parse ``/proc/PID/cgroup``: the path by controller; v2's is under the empty name."""
    paths: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            paths.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return paths


def is_frozen(pid: int) -> bool:
    """Whether the process is in a frozen cgroup; False also where that cannot be seen (another cgroup namespace)."""
    paths = parse_cgroups(read_small(f"/proc/{pid}/cgroup") or b"")
    for path, roots, file, mark in (
        (paths.get("freezer"), _V1_ROOTS, "freezer.state", (b"FROZEN", b"FREEZING")),
        (paths.get(""), _V2_ROOTS, "cgroup.events", (b"frozen 1",)),
    ):
        if path is None or path == "/" or "/.." in path:
            continue
        for root in roots:
            data = read_small(f"{root}{path}/{file}", 512)
            if data is not None and any(word in data for word in mark):
                return True
    return False
