"""The compose file and the Kubernetes manifests: whole, and what ctx accepts. They are not run here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import ROOT

from ctx.cli import COMMANDS
from ctx.config import load_config

yaml = pytest.importorskip("yaml")

DEPLOY = ROOT / "docs" / "deploy"
SECRETS = {"CTX_DATABASE_PASSWORD": "a", "CTX_API_KEY": "b"}


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def of_kind(kind: str) -> Iterator[dict[str, Any]]:
    return (manifest for manifest in manifests() if manifest["kind"] == kind)


def test_the_configuration_of_a_cluster_is_one_that_ctx_takes(tmp_path: Path) -> None:
    path = tmp_path / "ctx.toml"
    path.write_text((DEPLOY / "cluster.toml").read_text())
    (tmp_path / "docs").mkdir()
    config = load_config(str(path), SECRETS)
    assert config.index.engine == "opensearch"
    assert config.store.url == "postgresql://ctx:a@db/ctx"
    assert not config.warnings


def test_compose_names_what_the_configuration_reaches() -> None:
    services = compose()["services"]
    text = (DEPLOY / "cluster.toml").read_text()
    hosts = re.findall(r"(?:http://|@)([a-z0-9]+)", text)
    assert set(hosts) == {"db", "os1", "os2", "os3"} <= services.keys()
    for name in ("os1", "os2", "os3"):
        environment = services[name]["environment"]
        assert environment["node.name"] == name
        assert environment["discovery.seed_hosts"] == "os1,os2,os3"
    assert "C.UTF-8" in services["db"]["environment"]["POSTGRES_INITDB_ARGS"]


def test_compose_starts_commands_of_ctx_with_the_variables_and_files_they_need() -> None:
    document = compose()
    for name in ("ctx", "worker"):
        service = document["services"][name]
        assert service["command"][0] in COMMANDS
        assert service["environment"].keys() >= SECRETS.keys()
        source, target, _ = service["volumes"][0].split(":")
        assert (DEPLOY / source).is_file()
        assert target == service["environment"]["CTX_CONFIG"]
        assert (DEPLOY / service["build"]["context"] / "Dockerfile").is_file()
        assert service["depends_on"].keys() <= document["services"].keys()
    volumes = {
        volume.split(":")[0]
        for service in document["services"].values()
        for volume in service["volumes"]
        if volume[0] not in "./$"
    }
    assert volumes == document["volumes"].keys()


def test_containers_that_read_one_folder_bear_one_name_and_only_a_server_is_asked_how_it_is() -> None:
    services = compose()["services"]
    for name in ("ctx", "worker"):
        [source] = [path for path in services[name]["volumes"] if path.endswith(":/data/.ctx/machine:ro")]
        assert (DEPLOY / source.split(":")[0]).read_text().strip()
    assert services["worker"]["healthcheck"] == {"disable": True}
    (configuration,) = of_kind("ConfigMap")
    for manifest in of_kind("Deployment"):
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert configuration["data"][mounts["/data/.ctx/machine"]["subPath"]].strip()
        assert ("livenessProbe" in container) == (container["args"][0] == "serve")


def test_the_manifests_hold_the_same_configuration_and_fit_together() -> None:
    (configuration,) = of_kind("ConfigMap")
    assert configuration["data"]["ctx.toml"] == (DEPLOY / "cluster.toml").read_text()
    (service,) = of_kind("Service")
    deployments = {manifest["metadata"]["name"]: manifest["spec"] for manifest in of_kind("Deployment")}
    assert deployments.keys() == {"ctx", "worker"}
    for name, spec in deployments.items():
        pod = spec["template"]
        assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"] == {"app": name}
        (container,) = pod["spec"]["containers"]
        assert container["args"][0] in COMMANDS
        assert {entry["name"] for entry in container["env"]} >= SECRETS.keys()
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert service["spec"]["selector"] == {"app": "ctx"}
    (container,) = deployments["ctx"]["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["port"] in ports
    assert service["spec"]["ports"][0]["targetPort"] in ports
