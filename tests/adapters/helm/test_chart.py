"""The chart in `deploy/helm/calibrant`: linted and rendered by Helm's library, its objects compared with the schemas of Kubernetes.

The package of schemas has none of custom resources. What they must have is compared here field by field.
"""

from __future__ import annotations

import copy
import json
import os
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("helm_python", reason="Helm is installed by `make test-adapters`")

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmRenderError, HelmValuesError

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "calibrant"
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
CUSTOM = {"ServiceMonitor", "ScrapeConfig", "PrometheusRule", "ScaledObject"}
MINIMAL = {
    "store": {"existingSecret": "store"},
    "keys": {"existingSecret": "keys"},
    "ingress": {"host": "calibrant.example"},
}
# As the README of the chart installs it for a trial.
TRIAL = {"valkey": {"enabled": True}, "keys": {"create": True}, "ingress": {"enabled": False}}
KEDA = {
    "workers": {"autoscaling": {"enabled": True, "prometheusAddress": "http://prometheus:9090"}}
}
MONITORED = {
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "models": {"enabled": True, "keySecret": "reader"},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}
FULL = {
    **MINIMAL,
    **KEDA,
    **MONITORED,
    "env": {"CALIBRANT_LEASE": 4},
    "service": {"env": {"CALIBRANT_TENANT_RATE": 50}, "podAnnotations": {"team": "ml"}},
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
    "networkPolicy": {"clientNamespaces": [{"matchLabels": {"name": "ingress"}}]},
    "ingress": {"host": "calibrant.example", "tlsSecret": "tls", "addresses": ["10.42.0.0/16"]},
}
WITHOUT = {
    "ingress": {"enabled": False},
    "keys": {"document": json.dumps({"keys": [{"sha256": "0" * 64}]})},
    "store": {"url": "rediss+cluster://user:password@a:6379,b:6379"},
    "durability": "replicated",
    "service": {"autoscaling": {"enabled": False}},
    "networkPolicy": {"enabled": False},
    "disruptionBudget": {"enabled": False},
}
VALUES = {"minimal": MINIMAL, "trial": TRIAL, "full": FULL, "without": WITHOUT}


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(values)
    for name, value in changes.items():
        old = found.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        found[name] = merged(old, value) if both else value
    return found


def rendered(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects by kind and name."""
    with Chart.load(CHART) as chart:
        files = chart.render(values, name="cal", namespace="ml")
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    documents = [each for text in texts for each in yaml.safe_load_all(text) if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert len(found) == len(documents)
    return found


def container(found: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    [only] = found["Deployment", f"cal-{name}"]["spec"]["template"]["spec"]["containers"]
    return only


def variables(of: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in of["env"]}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_has_no_findings(values):
    report = lint(CHART, values, strict=True, with_subcharts=True)
    assert not report["errors"]
    # 1 is advice: an icon.
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_object_has_the_form_of_its_kind(values, version):
    """Strictly: a field that Kubernetes does not know is an error."""
    for (kind, _), each in rendered(values).items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_validation_finds_what_it_should():
    found = rendered(MINIMAL)["Deployment", "cal-service"]
    found["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, "1.29", strict=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": {"existingSecret": ""}}, "no store"),
        ({"keys": {"existingSecret": ""}}, "no keys"),
        ({"ingress": {"host": ""}}, "no ingress.host"),
        ({"valkey": {"enabled": True}}, "one of them"),
        ({"workers": {"autoscaling": {"enabled": True}}}, "prometheusAddress"),
        ({"durability": "sometimes"}, "/durability"),
        ({"partition": 8}, "partition"),
        ({"env": {"PATH": "x"}}, "PATH"),
        ({"store": {"url": "http://store"}}, "/store/url"),
    ],
)
def test_values_that_cannot_work_are_refused(changes, said):
    with pytest.raises((HelmRenderError, HelmValuesError), match=said):
        rendered(merged(MINIMAL, changes))


def test_a_trial_promises_no_more_than_its_store():
    with pytest.raises(HelmRenderError, match="no replica"):
        rendered(merged(TRIAL, {"durability": "replicated"}))


def test_service_and_workers_share_store_durability_and_partitions():
    found = rendered(merged(MINIMAL, {"partitions": 16, "env": {"CALIBRANT_LEASE": 6}}))
    shared = [variables(container(found, name)) for name in ("service", "workers")]
    for name in ("CALIBRANT_REDIS_URL", "CALIBRANT_DURABILITY", "CALIBRANT_PARTITIONS"):
        assert shared[0][name] == shared[1][name]
    assert shared[0]["CALIBRANT_PARTITIONS"] == "16"
    assert [each["CALIBRANT_LEASE"] for each in shared] == ["6", "6"]
    assert "CALIBRANT_KEYS_FILE" in shared[0] and "CALIBRANT_KEYS_FILE" not in shared[1]


def test_a_setting_of_the_service_comes_before_the_common_one():
    values = merged(FULL, {"env": {"CALIBRANT_TENANT_RATE": 5}})
    found = rendered(values)
    assert variables(container(found, "service"))["CALIBRANT_TENANT_RATE"] == "50"
    assert variables(container(found, "workers"))["CALIBRANT_TENANT_RATE"] == "5"


@pytest.mark.parametrize(("partitions", "most"), [(4, 4), (8, 8), (64, 20)])
def test_there_are_at_most_as_many_workers_as_partitions(partitions, most):
    values = merged(MINIMAL, {"partitions": partitions, "workers": {"replicas": 20}})
    assert rendered(values)["Deployment", "cal-workers"]["spec"]["replicas"] == most
    scaled = merged(merged(values, KEDA), {"workers": {"autoscaling": {"maxReplicas": 20}}})
    found = rendered(scaled)
    spec = found["ScaledObject", "cal-workers"]["spec"]
    assert (spec["maxReplicaCount"], spec["fallback"]["replicas"]) == (most, most)
    assert "replicas" not in found["Deployment", "cal-workers"]["spec"]


def test_keda_scales_by_what_waits():
    spec = rendered(FULL)["ScaledObject", "cal-workers"]["spec"]
    assert spec["scaleTargetRef"] == {"name": "cal-workers"}
    queries = [each["metadata"]["query"] for each in spec["triggers"]]
    scope = '{namespace="ml",service="cal-service"}'
    assert queries == [
        f"max(calibrant_merge_lag_seconds{scope})",
        f"max(calibrant_backlog_bytes{scope})",
    ]
    # Texts, as every value of a trigger; KEDA's fallback needs AverageValue.
    assert all(isinstance(v, str) for each in spec["triggers"] for v in each["metadata"].values())
    assert {each["metricType"] for each in spec["triggers"]} == {"AverageValue"}


def test_series_of_the_queries_exist():
    from calibrant_server.service.http.prometheus import OPERATION

    assert {"calibrant_merge_lag_seconds", "calibrant_backlog_bytes"} <= OPERATION.keys()


def test_probes_do_not_restart_for_a_store_that_is_away():
    found = rendered(MINIMAL)
    service, workers = container(found, "service"), container(found, "workers")
    assert service["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert service["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert "livenessProbe" not in workers
    assert workers["readinessProbe"]["exec"]["command"][-1] == "--here"


def test_pods_have_no_privileges():
    found = rendered(FULL) | rendered(TRIAL)
    pods = [
        each["spec"]["template"]["spec"]
        for (kind, _), each in found.items()
        if kind in ("Deployment", "StatefulSet")
    ]
    assert len(pods) == 3
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in pod["containers"]:
            security = each["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert each["resources"]["limits"]["memory"]


def test_selectors_name_the_pods_of_the_release():
    found = rendered(FULL)
    for component in ("service", "workers"):
        pod = found["Deployment", f"cal-{component}"]["spec"]["template"]["metadata"]["labels"]
        budget = found["PodDisruptionBudget", f"cal-{component}"]["spec"]
        policy = found["NetworkPolicy", f"cal-{component}"]["spec"]
        for selector in (budget["selector"], policy["podSelector"]):
            assert selector["matchLabels"].items() <= pod.items()
            assert selector["matchLabels"]["app.kubernetes.io/component"] == component
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    labels = found["Service", "cal-service"]["metadata"]["labels"]
    monitor = found["ServiceMonitor", "cal-service"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    # The alerts name the job.
    assert labels[monitor["jobLabel"]] == "calibrant"


def test_workers_receive_nothing_and_reach_store_names_and_webhooks():
    found = rendered(MINIMAL)
    workers = found["NetworkPolicy", "cal-workers"]["spec"]
    assert workers["ingress"] == [] and workers["policyTypes"] == ["Ingress", "Egress"]
    ports = [{port["port"] for port in rule["ports"]} for rule in workers["egress"]]
    assert ports == [{53}, {6379}, {443}]
    service = found["NetworkPolicy", "cal-service"]["spec"]
    assert [{port["port"] for port in rule["ports"]} for rule in service["egress"]] == [
        {53},
        {6379},
    ]
    quiet = rendered(merged(MINIMAL, {"networkPolicy": {"webhooks": False}}))
    assert len(quiet["NetworkPolicy", "cal-workers"]["spec"]["egress"]) == 2


def test_webhooks_leave_out_what_the_guard_of_the_workers_closes():
    """Also where this cluster's interpreter knows less: a policy needs no worker to hold."""
    from calibrant_server.workers.alarm.url_guard import is_open

    rule = rendered(MINIMAL)["NetworkPolicy", "cal-workers"]["spec"]["egress"][-1]
    blocks = [each["ipBlock"] for each in rule["to"]]
    excepted = [ip_network(each) for block in blocks for each in block["except"]]
    closed = "10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.0.192 192.88.99.1 168.63.129.16 3fff::1 2002:a00:1:: 2001:db8::1"
    for address in map(ip_address, closed.split()):
        assert not is_open(address)
        assert any(address in each for each in excepted), address
    assert all(is_open(ip_address(each)) for each in ("1.1.1.1", "2606:4700::1111"))
    assert not any(ip_address("1.1.1.1") in each for each in excepted)


def test_only_the_release_reaches_the_store_of_a_trial():
    found = rendered(TRIAL)
    [rule] = found["NetworkPolicy", "cal-valkey"]["spec"]["ingress"]
    [peer] = rule["from"]
    for component in ("service", "workers"):
        pod = found["Deployment", f"cal-{component}"]["spec"]["template"]["metadata"]["labels"]
        assert peer["podSelector"]["matchLabels"].items() <= pod.items()
        [_, store] = found["NetworkPolicy", f"cal-{component}"]["spec"]["egress"][:2]
        valkey = found["StatefulSet", "cal-valkey"]["spec"]["template"]["metadata"]["labels"]
        assert store["to"][0]["podSelector"]["matchLabels"].items() <= valkey.items()


def test_the_store_of_a_trial_has_the_configuration_of_the_others():
    stored = rendered(TRIAL)["ConfigMap", "cal-valkey"]["data"]["valkey.conf"]
    assert stored.strip() == (ROOT / "deploy" / "redis.conf").read_text().strip()


def test_the_rules_are_those_of_the_repository():
    found = rendered(FULL)["PrometheusRule", "cal"]
    assert found["spec"] == RULES
    assert found["metadata"]["labels"]["release"] == "prometheus"


def test_models_are_scraped_once():
    found = rendered(FULL)
    [endpoint] = found["ServiceMonitor", "cal-service"]["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    spec = found["ScrapeConfig", "cal-models"]["spec"]
    assert spec["metricsPath"] == "/metrics/models"
    assert spec["staticConfigs"] == [{"targets": ["cal-service.ml.svc:8000"]}]
    assert spec["authorization"]["credentials"] == {"name": "reader", "key": "key"}


def test_every_setting_in_the_chart_exists():
    from calibrant_server.service.settings import Settings
    from calibrant_server.workers.settings import EngineSettings
    from calibrant_server.workers.settings import variables as known_of

    known = known_of(Settings).keys() | known_of(EngineSettings).keys()
    for values in VALUES.values():
        for name in ("service", "workers"):
            named = variables(container(rendered(values), name))
            assert {each for each in named if each.startswith("CALIBRANT_")} <= known


def test_the_ingress_has_every_path_for_the_public_and_no_other():
    """Prometheus and probes reach the pods; traffic of all tenants and the state of the store are not for others."""
    from calibrant_server.service.routes import routers

    spec = rendered(FULL)["Ingress", "cal"]["spec"]
    assert spec["tls"] == [{"secretName": "tls", "hosts": ["calibrant.example"]}]
    [rule] = spec["rules"]
    paths = {each["path"]: each["pathType"] for each in rule["http"]["paths"]}
    assert paths.pop("/") == "Exact" and set(paths.values()) == {"Prefix"}

    def is_open(path: str) -> bool:
        return path == "/" or any(path == each or path.startswith(f"{each}/") for each in paths)

    every = {getattr(route, "path", "") for router in routers() for route in router.routes}
    assert {path for path in every if not is_open(path)} == {
        "/metrics",
        "/metrics/models",
        "/readyz",
    }


def test_the_service_trusts_the_addresses_of_the_ingress():
    assert (
        variables(container(rendered(FULL), "service"))["CALIBRANT_TRUSTED_PROXIES"]
        == "10.42.0.0/16"
    )
    assert "CALIBRANT_TRUSTED_PROXIES" not in variables(container(rendered(MINIMAL), "service"))


def test_no_annotation_tells_about_a_secret():
    """A digest would let whoever reads pods test guesses of a password."""
    found = rendered(WITHOUT)["Deployment", "cal-service"]["spec"]["template"]["metadata"]
    assert found["annotations"] == {"calibrant/revision": "1"}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("name", ["service", "workers"])
def test_the_environment_of_each_container_starts_its_program(values, name, tmp_path, monkeypatch):
    """Settings and start, up to the first use of the store: values that no cluster could run are found here."""
    from calibrant_server.service import main as service
    from calibrant_server.workers import main as workers

    found = rendered(values)
    of = container(found, name)
    for each in [each for each in os.environ if each.startswith("CALIBRANT_")]:
        monkeypatch.delenv(each)
    for variable, value in variables(of).items():
        given = value if isinstance(value, str) else STAND_IN[value["secretKeyRef"]["key"]]
        if variable == "CALIBRANT_KEYS_FILE":
            mount, file = given.rsplit("/", 1)
            assert mount in [each["mountPath"] for each in of["volumeMounts"]]
            given = str(tmp_path / file)
            Path(given).write_text(keys_of(found))
        monkeypatch.setenv(variable, given.replace("$(STORE_PASSWORD)", "x"))

    class Started(Exception):
        """It would serve now."""

    def start(*_: object, **__: object) -> None:
        raise Started

    program, step = {"service": (service, "bound_to"), "workers": (workers, "run_reported")}[name]
    monkeypatch.setattr(program, step, start)
    with pytest.raises(Started):
        program.main()


# Values of Secrets that exist elsewhere, by their key.
STAND_IN = {"url": "redis+cluster://user:password@a:6379", "password": "x"}


def keys_of(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return the keys document of the release; that of a Secret from elsewhere has one key."""
    if ("Secret", "cal-keys") not in found:
        return json.dumps({"keys": [{"sha256": "0" * 64}]})
    return found["Secret", "cal-keys"]["stringData"]["keys.json"]


def test_a_trial_has_a_key_that_the_service_accepts():
    from calibrant_server.service.security.key_file import parsed
    from calibrant_server.service.security.keys import Keyring

    secret = rendered(TRIAL)["Secret", "cal-keys"]["stringData"]
    keyring = Keyring(parsed(secret["keys.json"].encode(), "chart"))
    assert "admin" in keyring.caller(secret["first-key"]).scopes
