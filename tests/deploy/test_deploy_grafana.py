"""Dashboards, their provisioning, and the composition of all three servers: nothing refers to what is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import FOLDER, asked_metrics, known_metrics, panel_queries, read_dashboards, read_rules

DEPLOY = FOLDER.parents[1]
DASHBOARDS = read_dashboards()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_dashboards_are_kept_so_that_a_change_is_a_small_diff(path: Path) -> None:
    """Two spaces, as Grafana exports them, without the id and version of one server."""
    dashboard = json.loads(path.read_text())
    assert path.read_text() == json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
    assert dashboard["uid"] == path.stem
    assert not {"id", "version"} & dashboard.keys()


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
def test_every_panel_has_a_place_a_title_and_a_query(dashboard: dict[str, Any]) -> None:
    """No two panels lie on one another, and each asks the data source that the user chose."""
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["targets"]
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_links_lead_to_dashboards_that_are_there() -> None:
    """A click on a job or a rank opens a dashboard of ours with a variable that it knows."""
    links = re.findall(r"/d/([\w-]+)\?([^\"]*)", json.dumps(list(DASHBOARDS.values())))
    assert links
    for uid, arguments in links:
        variables = {variable["name"] for variable in DASHBOARDS[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", arguments)) <= variables


def test_queries_ask_for_metrics_that_exist() -> None:
    """Every metric in a query is one of docs/metrics.md, one of our rules, or a standard one of our scrape jobs."""
    for query in panel_queries():
        asked = asked_metrics(query.expression)
        assert asked <= known_metrics(), query
        assert asked or re.search(r'\b(up|process_\w+)\{job=~"hangwatch', query.expression), query


def test_no_query_has_a_window_of_its_own_or_leaves_the_cluster_out() -> None:
    """Grafana knows the scrape interval and the width of a panel; every selector follows the variables above the panels."""
    for query in panel_queries():
        assert not re.search(r"\[\d", query.expression), query
        selectors = re.findall(r"\b(?:\w+:)?(?:hangwatch|process|up)(?:_\w+)?(?::\w+)?\b(\{[^}]*\})?", query.expression)
        assert selectors, query
        if query.panel != "variable cluster":
            assert all('cluster=~"$cluster"' in selector for selector in selectors), query


def test_legends_show_a_jobs_name_and_never_its_id() -> None:
    """torchrun makes up a UUID at each start."""
    targets = [t for d in DASHBOARDS.values() for panel in d["panels"] for t in panel.get("targets", ())]
    legends = [target["legendFormat"] for target in targets if "legendFormat" in target]
    assert legends
    assert not [legend for legend in legends if "job_id" in legend]


def test_an_annotation_says_what_an_alert_does() -> None:
    """Which job, both lines, the cause, what to do, and both links, each a label that the query gives."""
    for dashboard in DASHBOARDS.values():
        (annotation,) = dashboard["annotations"]["list"]
        shown = set(re.findall(r"{{(\w+)}}", annotation["titleFormat"] + annotation["textFormat"]))
        assert shown == {
            "kind", "name", "summary", "job_text", "culprit_line", "others_line", "title", "remedy", "page_url", "more",
        }  # fmt: skip


def test_rules_ask_for_metrics_that_exist() -> None:
    """So do the rules, and the templates in their annotations."""
    texts = [text for rule in read_rules() for text in (rule["expr"], *rule.get("annotations", {}).values())]
    assert set().union(*map(asked_metrics, texts)) <= known_metrics()


def test_provisioning_finds_the_dashboards_and_their_data_source() -> None:
    """Grafana reads the dashboards from where the composition puts them, and asks Prometheus where it listens."""
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text())["services"]
    folder = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards" / "hangwatch.yml").read_text())["providers"]
    (source,) = yaml.safe_load((folder / "datasources" / "hangwatch.yml").read_text())["datasources"]
    assert f"../grafana/dashboards:{provider['options']['path']}:ro" in compose["grafana"]["volumes"]
    assert f"--web.listen-address={source['url'].removeprefix('http://')}" in compose["prometheus"]["command"]
    home = compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (FOLDER / Path(home).name).exists()


def test_the_composition_mounts_what_is_there() -> None:
    """Every path that is mounted exists, every file named on a command line is in a mount, every image has a version."""
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text())
    assert set(compose["services"]) == {"prometheus", "alertmanager", "grafana"}
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"])
        mounts = dict(volume.removesuffix(":ro").split(":") for volume in service["volumes"])
        for source in mounts:
            assert source in compose["volumes"] or (DEPLOY / "compose" / source).is_dir()
        there = {inside: DEPLOY / "compose" / source for source, inside in mounts.items()}
        for argument in service.get("command", ()):
            name, _, value = argument.partition("=")
            if name == "--config.file":
                folder = there[str(Path(value).parent)]
                assert (folder / Path(value).name).exists()
            if "listen-address" in name:
                assert value.startswith("127.0.0.1:") or not value


def test_the_composition_puts_alerts_where_alertmanager_listens() -> None:
    """The Prometheus configuration that is mounted names the address of the Alertmanager beside it."""
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text())["services"]
    name = Path(compose["prometheus"]["command"][0].partition("=")[2]).name
    config = yaml.safe_load((DEPLOY / "prometheus" / name).read_text())
    (target,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert f"--web.listen-address={target}" in compose["alertmanager"]["command"]
