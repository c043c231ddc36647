"""The Helm chart: its objects are valid for Kubernetes, complete, and fit hangwatch and each other."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import redis
import yaml
from chart import (
    CHART,
    EVERYTHING,
    RECIPES,
    Object,
    all_objects,
    fields,
    helm_python,
    load,
    load_script,
    pods,
    render,
    the,
)  # fmt: skip
from jsonschema import Draft7Validator

import hangwatch
from dashboards import read_dashboards
from hangwatch.cli.commands.agent import agent
from hangwatch.cli.settings import SECRET_VARIABLES
from hangwatch.config.settings import Settings
from hangwatch.config.toml import parse_config
from hangwatch.exchange.opening import parse_exchange
from shown import SHOWN, Shown
from support import JobRunner, wait_for

ROOT = CHART.parents[2]
#: What the chart says works (native sidecars), and the newest that there is a schema for.
VERSIONS = ("1.29", "1.37")
#: Kinds of Kubernetes that not all of these versions have: the chart makes them only if asked to.
SINCE_1_36 = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
CHECKED = json.loads((ROOT / "tests" / "fixtures" / "crd_fields.json").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def is_custom(document: Object) -> bool:
    """True for what a CustomResourceDefinition defines."""
    return f"{document['apiVersion']}/{document['kind']}" in CHECKED


def settings_of(values: Mapping[str, Any]) -> Settings:
    """What the agent of a node reads."""
    return parse_config(the("ConfigMap", render(values))["data"]["hangwatch.toml"])


def node_agent(values: Mapping[str, Any]) -> Object:
    """The pod of a node's agent."""
    (pod,) = pods(the("DaemonSet", render(values)))
    return pod


def names(containers: list[Object]) -> dict[str, str]:
    """Variables of containers: the value, or the field or key that it comes from."""
    found = {}
    for entry in (entry for container in containers for entry in container.get("env", ())):
        (source,) = entry.get("valueFrom", {"": {}}).values()
        found[entry["name"]] = entry.get("value") or source.get("fieldPath") or source["key"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_and_pods_are_valid(version: str) -> None:
    """Kubernetes' own objects, and every pod, also those in objects of operators; a field that is not known is refused."""
    kinds = set()
    for document in all_objects():
        newer = document["kind"] in SINCE_1_36 and version == VERSIONS[0]
        found = [*pods(document), *([] if is_custom(document) or newer else [document])]
        for one in found:
            kubernetes_validate.validate(one, version, strict=True)
        kinds |= {one["kind"] for one in found}
    assert kinds == {
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment", "NetworkPolicy", "PersistentVolumeClaim",
        "Pod", "Secret", "Service", "ServiceAccount", *(SINCE_1_36 if version == VERSIONS[1] else ()),
    }  # fmt: skip


def test_a_mistake_would_be_seen() -> None:
    """The schema is strict: a misspelt field is refused."""
    pod = node_agent({})
    pod["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


def test_fields_of_operators_objects_were_checked_against_their_definitions() -> None:
    """``crds.py`` has seen every field outside of pods, and every kind."""
    seen = set()
    for document in filter(is_custom, all_objects()):
        key = f"{document['apiVersion']}/{document['kind']}"
        unchecked = set(fields({"spec": document["spec"]})) - set(CHECKED[key]["fields"])
        assert not unchecked, f"run tests/deploy/crds.py with {CHECKED[key]['checked']}: {unchecked}"
        seen.add(key)
    assert seen == CHECKED.keys()


def test_helm_lints_and_packages_the_chart(tmp_path: Path) -> None:
    """Nothing but the missing icon is said; a package holds rules, texts and dashboards, and renders the same."""
    for values in ({}, EVERYTHING, *({"recipe": recipe} for recipe in RECIPES)):
        report = helm_python.lint(CHART, dict(values), namespace="watch")
        assert report["errors"] == []
        assert [said["error"] for said in report["messages"]] == ["icon is recommended"]
    archive = helm_python.package(CHART, destination=str(tmp_path))
    with helm_python.Chart.load(archive) as packaged:
        assert packaged.version == packaged.metadata["appVersion"] == hangwatch.__version__
        rendered = [chart.render(dict(EVERYTHING), name="hangwatch", namespace="watch") for chart in (packaged, load())]
    assert rendered[0] == rendered[1]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"agents": {}}, "agents"),
        ({"agent": {"toleration": []}}, "toleration"),
        ({"agent": {"capabilities": ["SYS_ADMIN"]}}, "capabilities"),
        ({"settings": {"on_hang": {"action": "reboot"}}}, "on_hang"),
        ({"settings": {"stall_after": 60}}, "stall_after"),
        ({"settings": {"receivers": {"webhook": ["https://example.org"]}}}, "receivers"),
        ({"settings": {"exchange": "redis://:password@host"}}, "exchange"),
        ({"settings": {"bundles": {"max_count": 1.5}}}, "max_count"),
        ({"state": {"kind": "s3"}}, "kind"),
        ({"secret": {"variables": {"HANGWATCH_WEBHOK": "x"}}}, "HANGWATCH_WEBHOK"),
        ({"valkey": {"password": "p@ss"}}, "password"),
        ({"recipe": "mpijob"}, "recipe"),
        ({"job": {"nodes": 1}}, "nodes"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], said: str) -> None:
    """The message names the key."""
    with pytest.raises(helm_python.HelmValuesError, match=said):
        load().validate_schema(values)


def test_every_value_is_in_the_schema_and_every_setting_of_hangwatch() -> None:
    """No value can be misspelt, and all settings can be made but those that the chart makes and secrets."""
    Draft7Validator.check_schema(SCHEMA)
    load().validate_schema({})
    shown = yaml.safe_load((CHART / "values.yaml").read_text())
    assert shown.keys() == SCHEMA["properties"].keys() - {"global"}
    for key, section in shown.items():
        if isinstance(section, dict) and key != "settings":
            assert section.keys() == SCHEMA["properties"][key]["properties"].keys(), key
    known = SCHEMA["properties"]["settings"]["properties"]
    own = {"listen", "state_dir", "token_file", "receivers", "max_restarts"}
    assert known.keys() == set(Settings.__struct_fields__) - own
    for field in msgspec.structs.fields(Settings):
        if field.name in known and isinstance(field.default, msgspec.Struct):
            assert known[field.name]["properties"].keys() == set(field.default.__struct_fields__), field.name
    variables = SCHEMA["properties"]["secret"]["properties"]["variables"]["propertyNames"]["anyOf"][0]["enum"]
    assert set(variables) == SECRET_VARIABLES | {"HANGWATCH_TOKEN", "HANGWATCH_SECRET"}


def test_the_agent_reads_its_settings() -> None:
    """Whole numbers stay whole, and defaults are what values.yaml says."""
    settings = settings_of({})
    assert settings.listen == "0.0.0.0:9753"
    assert (settings.exchange, settings.on_hang.action, settings.log.format) == ("local", "report", "json")
    settings = settings_of(EVERYTHING)
    assert settings.on_hang.command == "python3 /etc/hangwatch/cluster.py event cordon"
    assert (settings.on_hang.limit_per_hour, settings.bundles.max_count, settings.bundles.max_size_gb) == (3, 100, 2.5)


def test_variables_and_options_are_those_of_hangwatch() -> None:
    """Every variable is documented, and every command line of an agent can be parsed."""
    known = set(re.findall(r"`(HANGWATCH_\w+)`", (ROOT / "docs" / "configuration.md").read_text()))
    lines = set()
    for document in all_objects():
        for pod in pods(document):
            containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            assert {name for name in names(containers) if name.startswith("HANGWATCH_")} <= known
            lines |= {tuple(one["args"]) for one in containers if one.get("args", [""])[0] == "agent"}
    assert len(lines) == 3
    for line in lines:
        agent.make_context("agent", list(line[1:]))


def test_the_agent_sees_the_node_and_writes_only_its_state() -> None:
    """The node's processes, a read-only root, few capabilities, no token of Kubernetes, no Secret that has to exist."""
    spec = node_agent({})["spec"]
    (agent,) = spec["containers"]
    assert spec["hostPID"]
    assert not spec["automountServiceAccountToken"]
    assert agent["securityContext"]["readOnlyRootFilesystem"]
    assert agent["securityContext"]["capabilities"]["drop"] == ["ALL"]
    folder = "/var/lib/hangwatch"
    assert names([agent]) == {"HANGWATCH_NODE": "spec.nodeName", "HANGWATCH_STATE_DIR": folder}
    assert [source["secretRef"]["optional"] for source in agent["envFrom"]] == [True]
    assert {volume["name"] for volume in spec["volumes"]} == {mount["name"] for mount in agent["volumeMounts"]}
    assert folder in {mount["mountPath"] for mount in agent["volumeMounts"] if not mount.get("readOnly")}
    # /livez speaks of the jobs: it would restart the agent while one hangs.
    assert agent["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert agent["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.parametrize(
    ("settings", "kills"),
    [
        ({}, False),
        ({"on_hang": {"action": "exec:stop"}}, False),
        ({"on_hang": {"action": "stop"}}, True),
        ({"on_hang": {"action": "raise,exec:true"}}, True),
        ({"on_silent_failure": {"action": "stop"}}, True),
    ],
)
def test_only_an_agent_that_ends_jobs_may_kill(settings: dict[str, Any], kills: bool) -> None:
    """CAP_KILL comes with the settings that need it."""
    (agent,) = node_agent({"settings": settings})["spec"]["containers"]
    assert ("KILL" in agent["securityContext"]["capabilities"]["add"]) is kills


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.tool == "helm"], ids=str)
def test_commands_of_helm_on_the_pages_render(shown: Shown) -> None:
    """The chart takes the values that they set, and makes something of them."""
    command, name, chart, *options = shown.words[1:]
    assert command in {"install", "upgrade", "template"}
    assert (ROOT / chart).resolve() == CHART
    given = ",".join(value for option, value in itertools.pairwise(options) if option == "--set")
    assert render(helm_python.parse_set_string(given), name)


@pytest.mark.parametrize("kind", ["hostPath", "emptyDir", "persistentVolumeClaim"])
def test_bundles_are_kept_where_the_values_say(kind: str) -> None:
    """One claim serves all nodes, each in a folder of its own; one that exists is not made."""
    spec = node_agent({"state": {"kind": kind}})["spec"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "state"]
    (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "state"]
    assert kind in volume
    assert mount.get("subPathExpr") == ("$(HANGWATCH_NODE)" if kind == "persistentVolumeClaim" else None)
    named = render({"state": {"kind": kind, "claim": {"name": "mine"}}})
    assert "PersistentVolumeClaim" not in {document["kind"] for document in named}


_EVENTS = {"/events create", "/pods get"}


@pytest.mark.parametrize(
    ("switches", "rights"),
    [
        ({"cordon": {"enabled": True}}, {"/nodes patch"}),
        ({"events": {"enabled": True}}, _EVENTS),
        ({"cordon": {"enabled": True}, "events": {"enabled": True}}, {"/nodes patch", *_EVENTS}),
        ({"events": {"enabled": True, "trainJobs": True}}, {"trainer.kubeflow.org/trainjobs get", *_EVENTS}),
    ],
)
def test_an_account_may_do_what_is_switched_on_and_nothing_else(switches: dict[str, Any], rights: set[str]) -> None:
    """The rights, the token and the script come with the switches alone."""
    assert {"ClusterRole", "ClusterRoleBinding"}.isdisjoint(document["kind"] for document in render())
    assert "cluster.py" not in the("ConfigMap", render())["data"]
    objects = render(switches)
    (role,) = [document for document in objects if document["kind"] == "ClusterRole"]
    given = [
        f"{group}/{what} {verb}"
        for rule in role["rules"]
        for group, what, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    ]
    assert (len(given), set(given)) == (len(rights), rights)
    (binding,) = [document for document in objects if document["kind"] == "ClusterRoleBinding"]
    spec = node_agent(switches)["spec"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": spec["serviceAccountName"], "namespace": "watch"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert spec["automountServiceAccountToken"]
    (config,) = [volume["configMap"] for volume in spec["volumes"] if volume["name"] == "config"]
    assert (
        the("ConfigMap", objects, config["name"])["data"]["cluster.py"] == (CHART / "files" / "cluster.py").read_text()
    )


def test_policies_select_the_pods_and_name_their_ports() -> None:
    """Whoever is not named cannot reach the page; only pods with an agent reach Valkey."""
    objects = render(EVERYTHING)
    with_agents = [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"hangwatch": "agent"}}}]
    for name, kind, allowed in (
        ("hangwatch", "DaemonSet", EVERYTHING["networkPolicy"]["from"]),
        ("hangwatch-valkey", "Deployment", with_agents),
    ):
        policy, (pod,) = the("NetworkPolicy", objects, name)["spec"], pods(the(kind, objects, name))
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        (rule,) = policy["ingress"]
        assert rule["from"] == allowed
        (port,) = pod["spec"]["containers"][0]["ports"]
        assert rule["ports"] == [{"port": port["name"]}]
    assert "from" not in the("NetworkPolicy", render())["spec"]["ingress"][0]


def test_prometheus_finds_agents_and_sidecars() -> None:
    """The mark and the name of the port; the job that rules and dashboards look for."""
    monitor = the("PodMonitor", render(EVERYTHING))["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "hangwatch"}]
    for document in (the("DaemonSet", render()), *(render({"recipe": recipe}, "train")[0] for recipe in RECIPES)):
        for pod in pods(document):
            assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            assert [p["name"] for one in containers for p in one.get("ports", ())] == [endpoint["port"]]


def test_rules_dashboards_and_routes_are_the_shipped_ones() -> None:
    """One source: what the chart installs is what deploy/ has."""
    objects = render(EVERYTHING)
    shipped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules" / "hangwatch.rules.yml").read_text())
    assert the("PrometheusRule", objects)["spec"] == shipped
    maps = [one for one in objects if one["kind"] == "ConfigMap" and "grafana_dashboard" in one["metadata"]["labels"]]
    found = {Path(name).stem: json.loads(text) for one in maps for name, text in one["data"].items()}
    assert found == read_dashboards()

    config = yaml.safe_load((ROOT / "deploy" / "alertmanager" / "alertmanager.yml").read_text())
    spec = the("AlertmanagerConfig", objects)["spec"]

    def written(matchers: list[dict[str, str]]) -> list[str]:
        return [f'{one["name"]}{one["matchType"]}"{one["value"]}"' for one in matchers]

    def snake(route: dict[str, Any]) -> dict[str, Any]:
        named = {re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", key): value for key, value in route.items()}
        return {**named, **({"matchers": written(route["matchers"])} if "matchers" in route else {}),
                **({"routes": [snake(one) for one in route["routes"]]} if "routes" in route else {})}  # fmt: skip

    assert snake(spec["route"]) == config["route"]
    for rule, ours in zip(spec["inhibitRules"], config["inhibit_rules"], strict=True):
        assert written(rule["sourceMatch"]) == ours["source_matchers"]
        assert written(rule["targetMatch"]) == ours["target_matchers"]
        assert rule["equal"] == ours["equal"]
    assert [receiver["name"] for receiver in spec["receivers"]] == [one["name"] for one in config["receivers"]]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_sidecar_and_the_job_share_what_they_have_to(recipe: str) -> None:
    """The process namespace, the volume with probe and run directory, the labels that name the job, the node's name."""
    for pod in pods(render({**EVERYTHING, "recipe": recipe}, "train")):
        spec = pod["spec"]
        probe, agent = spec["initContainers"]
        (job,) = spec["containers"]
        assert spec["shareProcessNamespace"]
        assert agent["restartPolicy"] == "Always"
        assert {"livenessProbe", "readinessProbe", "startupProbe"}.isdisjoint(agent)
        for container in (probe, agent, job):
            assert {"name": "hangwatch", "mountPath": "/hangwatch"} in container["volumeMounts"]
        assert probe["command"] == ["copy-probe", "/hangwatch"]
        assert names([agent])["HANGWATCH_NODE"] == "spec.nodeName"
        assert agent["envFrom"] == [{"secretRef": {"name": "keys", "optional": True}}]
        assert names([job]) == {
            "PYTHONPATH": "/hangwatch/probe/site:/app", "HANGWATCH_RUN_DIR": "/hangwatch/run", "SPT_NOENV": "1",
            "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
        }  # fmt: skip
        assert {volume["name"] for volume in spec["volumes"]} == {"hangwatch", "hangwatch-podinfo", "hangwatch-bundles"}
        (labels,) = [volume["downwardAPI"]["items"] for volume in spec["volumes"] if "downwardAPI" in volume]
        assert labels == [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        assert {"name": "hangwatch-podinfo", "mountPath": "/etc/podinfo", "readOnly": True} in job["volumeMounts"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_job_on_watched_nodes_needs_only_the_probe(recipe: str) -> None:
    """Without the sidecar nothing of a pod is changed but a volume and variables."""
    for pod in pods(render({"recipe": recipe, "sidecar": {"agent": False}}, "train")):
        assert [container["name"] for container in pod["spec"]["initContainers"]] == ["hangwatch-probe"]
        assert "shareProcessNamespace" not in pod["spec"]
        assert "livenessProbe" not in pod["spec"]["containers"][0]
        assert "labels" not in pod["metadata"]


@pytest.mark.parametrize(("on_nodes", "label"), [(True, "probe"), (False, "agent")])
def test_pods_with_a_label_are_given_what_watches_them(on_nodes: bool, label: str) -> None:
    """The probe where agents of the nodes see every pod, else also a sidecar. ``injection.py`` shows what becomes of a pod."""
    objects = render({"inject": {"enabled": True}, "agent": {"enabled": on_nodes}})
    name = "hangwatch-watch-inject"
    policy = the("MutatingAdmissionPolicy", objects, name)["spec"]
    assert the("MutatingAdmissionPolicyBinding", objects, name)["spec"] == {"policyName": name}
    assert policy["matchConstraints"]["objectSelector"] == {"matchLabels": {"hangwatch": label}}
    assert policy["failurePolicy"] == "Ignore"
    said = json.dumps(policy["mutations"])
    assert ("SYS_PTRACE" in said) is ("shareProcessNamespace" in said) is (not on_nodes)
    assert not [one for one in render() if one["kind"] in SINCE_1_36]


@pytest.mark.parametrize(
    ("path", "pods_of_job"),
    [
        ("trainjob: spec.mlPolicy.numNodes", 3),
        ("pytorchjob: spec.pytorchReplicaSpecs.Worker.replicas", 2),
        ("jobset: spec.replicatedJobs.0.template.spec.completions", 3),
        ("rayjob: spec.rayClusterSpec.workerGroupSpecs.0.replicas", 2),
        ("leaderworkerset: spec.leaderWorkerTemplate.size", 3),
        ("volcano: spec.tasks.1.replicas", 2),
    ],
)
def test_a_job_has_as_many_pods_as_were_asked_for(path: str, pods_of_job: int) -> None:
    """``job.nodes`` counts the first pod, which some operators call master or head."""
    recipe, _, place = path.partition(": ")
    found: Any = render({"recipe": recipe, "job": {"nodes": 3}}, "train")[0]
    for key in place.split("."):
        found = found[int(key) if key.isdigit() else key]
    assert found == pods_of_job


def test_an_engine_is_restarted_where_it_hangs() -> None:
    """``/livez`` of the agent in its pod is the engine's liveness probe."""
    (pod,) = pods(render({"recipe": "leaderworkerset"}, "train"))
    probe = pod["spec"]["containers"][0]["livenessProbe"]
    (port,) = pod["spec"]["initContainers"][1]["ports"]
    assert probe["httpGet"] == {"path": "/livez", "port": port["containerPort"]}
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 30


@pytest.mark.usefixtures("real")
def test_promtool_accepts_the_rendered_rules(tmp_path: Path) -> None:
    """``promtool`` on the rules in the PrometheusRule, and on the tests of the rules with these."""
    tests = ROOT / "deploy" / "prometheus" / "tests"
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    rules = tmp_path / "rules" / "hangwatch.rules.yml"
    rules.write_text(yaml.safe_dump(the("PrometheusRule", render(EVERYTHING))["spec"]))
    copies = [tmp_path / "tests" / path.name for path in tests.glob("*.yml")]
    for copy in copies:
        copy.write_text((tests / copy.name).read_text())
    for words in (["check", "rules", rules], ["test", "rules", *copies]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("part", ["title", "text"])
def test_slack_gets_our_text(tmp_path: Path, part: str) -> None:
    """The texts are complete in themselves, for Alertmanager's own engine of templates."""
    receivers = the("AlertmanagerConfig", render(EVERYTHING))["spec"]["receivers"]
    (slack,) = receivers[0]["slackConfigs"]
    labels, said = {"kind": "deadlock"}, {"summary": "Ranks hang.", "job": "llama"}
    data = {
        "status": "firing", "groupLabels": {}, "commonLabels": labels, "commonAnnotations": said,
        "alerts": [{"status": "firing", "labels": labels, "annotations": said}],
    }  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "empty.tmpl").touch()
    options = [f"--template.glob={tmp_path / '*.tmpl'}", f"--template.data={tmp_path / 'data.json'}"]
    done = subprocess.run(
        ["amtool", "template", "render", *options, f"--template.text={slack[part]}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == {"title": "Deadlock: llama", "text": "Ranks hang."}[part]


@pytest.mark.usefixtures("real")
def test_agents_reach_the_valkey_with_its_password_alone(jobs: JobRunner, free_port: int, tmp_path: Path) -> None:
    """The rendered configuration, read by a real server, and the rendered address."""
    objects = render(EVERYTHING)
    secret = the("Secret", objects, "hangwatch-valkey")["stringData"]
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    assert program is not None
    configuration = tmp_path / "valkey.conf"
    configuration.write_text(f"{secret['valkey.conf']}bind 127.0.0.1\nport {free_port}\n")
    job = jobs.start((program, str(configuration)))
    wait_for(lambda: "Ready to accept connections" in job.stdout(), 20.0, "the server to be ready")
    address = secret["HANGWATCH_EXCHANGE"]
    assert parse_exchange(address).kind == "redis"
    service = the("Service", objects, "hangwatch-valkey")
    place = f"{service['metadata']['name']}.watch.svc:{service['spec']['ports'][0]['port']}"
    assert place in address
    here = address.replace(place, f"127.0.0.1:{free_port}")
    with redis.Redis.from_url(here) as client:
        assert client.ping()
    with redis.Redis(port=free_port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """``cluster.py`` and what it asks a stand-in for the API server, which has everything of a JobSet but what is called gone."""
    asked: list[tuple[str, Any]] = []

    class Server(BaseHTTPRequestHandler):
        def answer(self) -> None:
            assert self.headers["Authorization"] == "Bearer the-token"
            length = int(self.headers["Content-Length"] or 0)
            asked.append((f"{self.command} {self.path}", json.loads(self.rfile.read(length)) if length else None))
            patch = "application/strategic-merge-patch+json"
            assert self.headers["Content-Type"] == (patch if self.command == "PATCH" else "application/json")
            self.send_response(404 if self.path.endswith("/gone") else 200)
            self.end_headers()
            name = self.path.rpartition("/")[2]
            metadata = {"name": name, "uid": f"uid-of-{name}", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}
            self.wfile.write(json.dumps({"metadata": metadata}).encode())

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    (tmp_path / "token").write_text("the-token\n")
    script = load_script(CHART / "files" / "cluster.py")
    monkeypatch.setattr(script, "ACCOUNT", tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(script, "SERVER", f"http://127.0.0.1:{server.server_port}")
        yield script, asked
        server.shutdown()


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("nodes", "status", "marked"), [("", 0, []), ("a,b", 0, ["a", "b"]), ("gone,a", 1, ["gone", "a"])]
)
def test_nodes_worth_leaving_out_are_cordoned(
    cluster: tuple[Any, list[tuple[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    nodes: str,
    status: int,
    marked: list[str],
) -> None:
    """The request that kubectl would send, with the token of the account; one node that is gone leaves out no other."""
    script, asked = cluster
    monkeypatch.setenv("HANGWATCH_EXCLUDE_NODES", nodes)
    monkeypatch.setattr("sys.argv", ["cluster.py", "cordon"])
    assert script.main() == status
    assert asked == [(f"PATCH /api/v1/nodes/{node}", {"spec": {"unschedulable": True}}) for node in marked]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("action", "pod", "about"),
    [
        ("event", "worker-0", "v1 Pod worker-0"),
        ("trainjob", "worker-0", "trainer.kubeflow.org/v1alpha1 TrainJob train"),
        ("event", "gone", None),
        ("event", "", None),
    ],
)
def test_a_verdict_is_put_on_a_pod_of_the_job_or_on_its_trainjob(
    cluster: tuple[Any, list[tuple[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    pod: str,
    about: str | None,
) -> None:
    """With its uid, and cut as Kubernetes' own clients cut it; without a pod there is none, and it says so."""
    script, asked = cluster
    (tmp_path / "incident.json").write_text(json.dumps({"job": {"id": "team/llama", "namespace": "team", "pod": pod}}))
    for name, value in {"": tmp_path, "_ID": "i-1"}.items():
        monkeypatch.setenv(f"HANGWATCH_INCIDENT{name}", str(value))
    monkeypatch.setenv("HANGWATCH_KIND", "rank_lost")
    monkeypatch.setenv("HANGWATCH_SUMMARY", "Rank 3 is gone. " * 100)
    monkeypatch.setattr("sys.argv", ["cluster.py", action])
    assert script.main() == (1 if about is None else 0)
    if about is None:
        assert not [path for path, _ in asked if path.startswith("POST")]
        return
    path, event = asked[-1]
    assert path == "POST /api/v1/namespaces/team/events"
    version, kind, name = about.split()
    assert event["involvedObject"] == {
        "apiVersion": version, "kind": kind, "name": name, "namespace": "team", "uid": f"uid-of-{name}",
    }  # fmt: skip
    assert (event["type"], event["reason"], len(event["message"])) == ("Warning", "RankLost", 1024)
    assert event["message"].startswith("Job team/llama: Rank 3 is gone. ")
