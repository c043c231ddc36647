"""The configuration of Prometheus and Alertmanager that is shipped, checked by their own tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("real")

REPOSITORY = Path(__file__).resolve().parents[2]
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
ALERTMANAGER = REPOSITORY / "deploy" / "alertmanager"
RULES = PROMETHEUS / "rules" / "hangwatch.rules.yml"


def check(tool: str, *arguments: str | Path) -> str:
    """Run a checker that must be there and be content; returns what it says."""
    program = shutil.which(tool)
    package = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}[tool]
    assert program is not None, f"{tool} is missing; install it with 'apt-get install {package}'"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def alerts() -> list[dict[str, dict[str, str]]]:
    """All alert rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus.file.yml"])
def test_promtool_accepts_the_configuration(name: str) -> None:
    """``promtool check config`` finds nothing, and the rules and targets that it names."""
    assert "1 rule files found" in check("promtool", "check", "config", PROMETHEUS / name)


def test_promtool_accepts_the_configuration_for_kubernetes(tmp_path: Path) -> None:
    """The same, with a list of targets in place of the discovery that Debian's build of Prometheus is without."""
    text = (PROMETHEUS / "prometheus.kubernetes.yml").read_text()
    discovery = "    kubernetes_sd_configs:\n      - role: pod\n"
    assert discovery in text
    shutil.copytree(PROMETHEUS / "rules", tmp_path / "rules")
    changed = tmp_path / "prometheus.yml"
    changed.write_text(text.replace(discovery, "    static_configs:\n      - targets: [127.0.0.1:9753]\n"))
    assert "1 rule files found" in check("promtool", "check", "config", changed)


@pytest.mark.parametrize("path", sorted((PROMETHEUS / "tests").glob("*.yml")), ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(path: Path) -> None:
    """``promtool test rules``: when each alert fires and ends, and every word that it says."""
    assert "SUCCESS" in check("promtool", "test", "rules", path)


def test_every_alert_has_a_test() -> None:
    """No alert is shipped that no test of the rules names."""
    tested = {
        name for path in (PROMETHEUS / "tests").glob("*.yml") for name in re.findall(r"Hangwatch\w+", path.read_text())
    }
    assert {rule["alert"] for rule in alerts()} == tested


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    """Summary, cause, remedy and runbook; of an incident the job and both lines; of a cause the command that prints its page."""
    said = rule["annotations"]
    assert {"summary", "cause", "remedy", "runbook_url"} <= said.keys()
    assert rule["labels"]["scope"] in {"job", "rank", "agent"}
    if rule["labels"]["scope"] == "job":
        assert {"job", "script", "culprit", "culprit_line", "others_line", "page_url", "more"} <= said.keys()
        return
    found = re.search(r'"{page}" "causes/([\w-]+)"', said["runbook_url"])
    assert said.get("more") == (f"hangwatch explain {found[1]}" if found is not None else None)


def test_amtool_accepts_the_configuration() -> None:
    """``amtool check-config`` finds routes, inhibitions, receivers and the templates."""
    said = check("amtool", "check-config", ALERTMANAGER / "alertmanager.yml")
    assert "2 inhibit rules" in said
    assert "1 templates" in said


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("scope=job", "severity=critical", "job_id=llama"), "hangs"),
        (("scope=job", "severity=warning", "job_id=llama"), "everything"),
        (("scope=rank", "severity=warning", "job_id=llama"), "everything"),
        (("scope=agent", "severity=warning"), "everything"),
    ],
)
def test_alerts_go_where_they_should(labels: tuple[str, ...], receiver: str) -> None:
    """A hang goes to those on call, everything else to where it can wait."""
    path = ALERTMANAGER / "alertmanager.yml"
    assert check("amtool", "config", "routes", "test", f"--config.file={path}", *labels).splitlines()[0] == receiver


def test_the_text_for_people_holds_cause_and_remedy(tmp_path: Path) -> None:
    """The template that chats and mails use says what happened, why, and what to do; of what is over, that it is."""
    labels = {"instance": "gpu-17", "kind": "deadlock", "job_id": "llama"}
    said = {
        "summary": "Ranks 0-7 hang.", "cause": "Labels differ", "remedy": "1. Keep them alike. 2. Drop metadata.",
        "job": "llama-sft, train.py", "culprit": "rank 0 on gpu-17", "culprit_line": "rank 0 at train.py:88: gather(x)",
        "others_line": "ranks 1-7 at train.py:91: loss.backward()", "incident": "20261121T1", "runbook_url": "",
        "page_url": "https://watch.example.org/incidents/20261121T1", "more": "hangwatch explain unknown",
    }  # fmt: skip

    def render(name: str, status: str) -> str:
        alert = {"status": status, "labels": labels, "annotations": said}
        data = {
            "status": status, "groupLabels": {"job_id": "llama"}, "commonLabels": labels, "commonAnnotations": said,
            "alerts": [alert],
        }  # fmt: skip
        (tmp_path / "data.json").write_text(json.dumps(data))
        return check(
            "amtool", "template", "render", f"--template.glob={ALERTMANAGER / '*.tmpl'}",
            f'--template.text={{{{ template "{name}" . }}}}', f"--template.data={tmp_path / 'data.json'}",
        ).strip()  # fmt: skip

    assert render("hangwatch.title", "firing") == "Deadlock: llama-sft, train.py"
    assert render("hangwatch.title", "resolved") == "Resolved: llama-sft, train.py"
    assert render("hangwatch.text", "resolved") == "Resolved: Ranks 0-7 hang."
    assert render("hangwatch.text", "firing").splitlines() == [
        "Ranks 0-7 hang.",
        "Job: llama-sft, train.py",
        "Culprit: rank 0 at train.py:88: gather(x)",
        "Others: ranks 1-7 at train.py:91: loss.backward()",
        "Cause: Labels differ",
        "Do first: Keep them alike.",
        "Page: https://watch.example.org/incidents/20261121T1",
        "More: hangwatch explain unknown",
        "gpu-17, incident 20261121T1",
    ]
