"""The dashboards that are shipped, and the queries in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"


@dataclass(frozen=True)
class PanelQuery:
    """One query: of which dashboard and panel, and whether it asks for the present alone."""

    dashboard: str
    panel: str
    expression: str
    instant: bool

    def filled(self, values: Mapping[str, str]) -> str:
        """The expression with Grafana's variables replaced."""
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], self.expression)

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}"


def read_dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panel_queries() -> Iterator[PanelQuery]:
    """Every query of every panel, annotation and variable."""
    for name, dashboard in read_dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield PanelQuery(name, panel["title"], target["expr"], bool(target.get("instant")))
        for annotation in dashboard["annotations"]["list"]:
            yield PanelQuery(name, f"annotation {annotation['name']}", annotation["expr"], False)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                yield PanelQuery(name, f"variable {variable['name']}", _asked(variable["definition"]), True)


def _asked(definition: str) -> str:
    """The expression behind a variable: the series of ``query_result(..)``, or those that have a label's values."""
    if (whole := re.fullmatch(r"query_result\((.*)\)", definition)) is not None:
        return whole[1]
    values = re.fullmatch(r"label_values\((.*), (\w+)\)", definition)
    assert values is not None
    return f"count by ({values[2]}) ({values[1]})"


def documented_metrics() -> set[str]:
    """Every series that docs/metrics.md has in its tables, by the name that a query asks for."""
    text = (FOLDER.parents[2] / "docs" / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(hangwatch_\w+)` \| (\w+)", text, re.MULTILINE))
    summaries = {name for name, kind in rows.items() if kind == "summary"}
    return rows.keys() - summaries | {f"{name}_{part}" for name in summaries for part in ("sum", "count")}


def read_rules() -> list[dict[str, Any]]:
    """Every rule, recording or alerting."""
    groups = yaml.safe_load((FOLDER.parents[1] / "prometheus" / "rules" / "hangwatch.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def known_metrics() -> set[str]:
    """Every name of ours that a query may ask for: those of docs/metrics.md, and what rules record."""
    return documented_metrics() | {rule["record"] for rule in read_rules() if "record" in rule}


def asked_metrics(text: str) -> set[str]:
    """The names of ours, and of our rules, in a query or a template."""
    return set(re.findall(r"(?<![\w.:])(?:\w+:)?hangwatch_\w+(?::\w+)?", text))
