"""What `deploy/` describes is valid, where no engine can run it: schemas, and that parts agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from gateway.wire.routes import ROUTES

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.34"


def resources() -> list[Any]:
    found = []
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            if document["kind"] != "Kustomization":
                found.append(pytest.param(document, id=f"{path.stem}-{number}"))
    return found


def containers() -> list[dict[str, Any]]:
    made = [param.values[0] for param in resources()]
    return [
        container
        for one in made
        if one["kind"] in ("Deployment", "Job")
        for container in one["spec"]["template"]["spec"]["containers"]
    ]


@pytest.mark.parametrize("resource", resources())
def test_a_manifest_fits_the_schema_of_kubernetes(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def test_the_kustomization_names_every_manifest() -> None:
    there = {p.name for p in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert set(kustomization["resources"]) == there


def compose() -> dict[str, Any]:
    text = (DEPLOY / "compose.yaml").read_text()
    given = re.sub(r"\$\{\w+(?::-([^}]*)|[^}]*)\}", lambda found: found[1] or "given", text)
    merged: dict[str, Any] = yaml.safe_load(given)
    return merged


def test_the_compose_file_fits_the_compose_specification() -> None:
    PyCompose.from_json(json.dumps(compose())).validate()


def test_what_nginx_sends_to_keeps_its_address() -> None:
    """It looks names up at its start only; by themselves two restarts swap two addresses."""
    services = compose()["services"]
    upstreams = set(re.findall(r"server ([\w-]+):8000", (DEPLOY / "nginx.conf").read_text()))
    fixed = {
        name: one["networks"]["default"]["ipv4_address"]
        for name, one in services.items()
        if "networks" in one
    }
    assert upstreams <= set(fixed)
    assert len(set(fixed.values())) == len(fixed)
    assert services["console"]["environment"]["TRUSTED_PROXIES"] == fixed["proxy"]


def from_nginx(path: str) -> str:
    """The upstream that gets a path."""
    text = (DEPLOY / "nginx.conf").read_text()
    [pattern] = re.findall(r"location ~ (\S+) \{\n\s+proxy_pass http://gateways;", text)
    return "gateway" if re.search(pattern, path) else "console"


def from_ingress(path: str) -> str:
    [rule] = yaml.safe_load((DEPLOY / "kubernetes" / "ingress.yaml").read_text())["spec"]["rules"]
    fits = [
        (one["pathType"] == "Exact", len(one["path"]), one["backend"]["service"]["name"])
        for one in rule["http"]["paths"]
        if path == one["path"]
        or (one["pathType"] == "Prefix" and f"{path}/".startswith(one["path"].rstrip("/") + "/"))
    ]
    return max(fits)[2]


@pytest.mark.parametrize("way", [from_nginx, from_ingress])
def test_what_applications_ask_reaches_a_gateway_and_pages_the_console(
    way: Callable[[str], str],
) -> None:
    asked = [*(route.path for route in ROUTES.values()), "/v1/models", "/v1/models/m", "/health"]
    assert {path: way(path) for path in asked} == dict.fromkeys(asked, "gateway")
    pages = ["/", "/usage/", "/api/v1/usage/records/", "/tokens/", "/healthz"]
    assert {path: way(path) for path in pages} == dict.fromkeys(pages, "console")


def test_the_containerfile_is_clean_and_takes_all_that_the_product_is() -> None:
    path = DEPLOY / "Containerfile"
    linter = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([linter, path], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
    copied = set(re.findall(r"^COPY (\w+) \w+$", path.read_text(), re.MULTILINE))
    assert copied >= {"fairlane", "gateway", "metering", "scheduling", "tenants", "templates"}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in ignored for name in copied)


@pytest.mark.parametrize("container", containers(), ids=lambda each: each["name"])
def test_a_container_may_do_no_more_than_it_must(container: dict[str, Any]) -> None:
    allowed = container["securityContext"]
    assert allowed["readOnlyRootFilesystem"] is True
    assert allowed["allowPrivilegeEscalation"] is False
    assert allowed["capabilities"] == {"drop": ["ALL"]}


def test_a_gateway_has_the_time_to_drain() -> None:
    made = {
        (r.values[0]["kind"], r.values[0]["metadata"]["name"]): r.values[0] for r in resources()
    }
    drain_s = int(made["ConfigMap", "fairlane"]["data"]["FAIRLANE_DRAIN_SECONDS"])
    for name in ("gateway", "console"):
        pod = made["Deployment", name]["spec"]["template"]["spec"]
        before_s = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
        assert pod["terminationGracePeriodSeconds"] >= before_s + drain_s + 15
