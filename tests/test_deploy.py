"""The examples of deployment work with the settings as they are, and with the programs that they are for."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml

from hyperslab import RemoteArray
from hyperslab.cli import run
from hyperslab.demo import demo_folder
from hyperslab.settings import Settings, load
from tests.benchmarks.nginx import free_port, started
from tests.chromium import Tab, browser, playwright, tab, window
from tests.demos import demo_parent
from tests.server import running_server
from tests.tools import ROOT, nginx, openssl
from tests.viewer.support import Viewer, read

__all__ = ["browser", "playwright", "tab", "window"]

DEPLOY = ROOT / "deploy"
GUIDES = sorted((ROOT / "docs" / "operate").glob("*.md"))
CLUSTER = {"HYPERSLAB_PORT": "tcp://10.0.0.1:80", "HYPERSLAB_SERVICE_HOST": "10.0.0.1"}
"""What Kubernetes puts into the environment of a pod beside a Service that is called hyperslab."""


def documents(name: str) -> Mapping[str, Any]:
    """By kind, what a YAML file of the examples holds."""
    return {item["kind"]: item for item in yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))}


def test_example_settings_are_understood() -> None:
    assert load(DEPLOY / "hyperslab.toml").stores["data"].url == "/data"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_settings_that_guides_show_are_understood(guide: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").touch()
    for block in re.findall(r"```toml\n(.*?)```", guide.read_text(encoding="utf-8"), flags=re.DOTALL):
        values = tomllib.loads(block)
        for store in values.get("stores", {}).values():
            store.setdefault("url", "/data")
        if "tokens_file" in values:  # which is read
            values["tokens_file"] = str(tmp_path / "tokens.toml")
        Settings(**values)


def test_compose_serves_the_example_settings_and_has_a_proxy_that_is_trusted() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    service, proxy = compose["services"]["hyperslab"], compose["services"]["proxy"]
    given = {key: value for key, value in service["environment"].items() if not value.startswith("$")}

    assert given.keys() == {"HYPERSLAB_TRUSTED_PROXIES"}
    assert Settings(trusted_proxies=json.loads(given["HYPERSLAB_TRUSTED_PROXIES"])).trusted_proxies
    assert proxy["command"][-1] == "hyperslab:8000"
    assert {volume.partition(":")[0] for volume in proxy["volumes"]} == compose["volumes"].keys()
    assert service["command"][:2] == ["serve", "--config"]
    assert f"./hyperslab.toml:{service['command'][2]}:ro" in service["volumes"]


def test_pods_start_with_their_settings_and_with_nothing_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = documents("kubernetes.yaml")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    config = tmp_path / "hyperslab.toml"
    config.write_text(found["ConfigMap"]["data"][config.name], encoding="utf-8")
    if pod.get("enableServiceLinks", True):
        for name, value in CLUSTER.items():
            monkeypatch.setenv(name, value)
    for name in re.findall(r"--from-literal=(\w+)=", (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")):
        monkeypatch.setenv(name, "secret")

    settings = load(config)

    assert set(settings.stores["scans"].options) == {"region", "access_key_id", "secret_access_key"}
    assert settings.shutdown_seconds + 5 < pod["terminationGracePeriodSeconds"]
    assert found["Service"]["metadata"]["name"] == "hyperslab"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert 0 < found["PodDisruptionBudget"]["spec"]["minAvailable"] < found["Deployment"]["spec"]["replicas"]
    ((path,),) = [rule["http"]["paths"] for rule in found["Ingress"]["spec"]["rules"]]
    port = path["backend"]["service"]["port"]["name"]
    assert port in [port["name"] for port in found["Service"]["spec"]["ports"]]
    body = found["Ingress"]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert int(body.removesuffix("m")) << 20 == settings.max_upload_bytes


def test_settings_that_cannot_be_used_are_not_tried_again_and_again() -> None:
    unit = (DEPLOY / "hyperslab.service").read_text(encoding="utf-8")

    assert f"RestartPreventExitStatus={run(['serve', '--config', '/no/such/file.toml'])}\n" in unit


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "hyperslab.service").read_text(encoding="utf-8")
    copy = tmp_path / "hyperslab.service"
    copy.write_text(unit.replace("/opt/hyperslab/bin/hyperslab", "/bin/true"), encoding="utf-8")

    done = subprocess.run([program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def behind_nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The demo behind the nginx of the guide: its URL, and a context that trusts it."""
    nginx()
    folder = tmp_path_factory.mktemp("nginx")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    self_signed = (
        f"{openssl()} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=h -addext subjectAltName=IP:127.0.0.1"
    )
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*self_signed.split(), *files], check=True, capture_output=True)
    (shown,) = re.findall(
        r"```nginx\n(.*?)```", (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8"), re.DOTALL
    )
    port = free_port()
    with running_server({"demo": demo_folder(demo_parent())}, trusted_proxies=["127.0.0.1"]) as server:
        here = shown.replace("listen 443", f"listen 127.0.0.1:{port}").replace("http://127.0.0.1:8000", server.url)
        here = re.sub(r"(ssl_certificate) .*;", rf"\1 {certificate};", here)
        here = re.sub(r"(ssl_certificate_key) .*;", rf"\1 {key};", here)
        with started(here, port):
            yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(certificate))


def test_links_behind_nginx_are_those_of_the_client(behind_nginx: tuple[str, ssl.SSLContext]) -> None:
    base, context = behind_nginx
    with urllib.request.urlopen(f"{base}/v1/tile/demo/microscope/info.json", context=context) as answer:
        assert f'"{base}/v1/tile/demo/microscope/' in answer.read().decode()


def test_nginx_lets_long_selections_through(behind_nginx: tuple[str, ssl.SSLContext]) -> None:
    base, context = behind_nginx
    indices = ",".join(["1"] * 20_000)
    with urllib.request.urlopen(f"{base}/v1/slice/demo/brain?select=[{indices}],0,0", context=context) as answer:
        assert answer.headers["Array-Shape"] == "[20000]"


def test_behind_a_proxy_that_cuts_a_prefix_off_all_is_below_it(tab: Tab, demo_store: Path) -> None:
    nginx()
    port = free_port()
    base = f"http://127.0.0.1:{port}/lab/arrays"
    with running_server({"demo": demo_store}, root_path="/lab/arrays/") as server:
        location = f"location /lab/arrays/ {{ proxy_pass {server.url}/; proxy_set_header Host $http_host; }}"
        with started(f"server {{ listen 127.0.0.1:{port}; {location} }}", port):
            viewer = Viewer(tab, base)
            viewer.open_image("/view/demo/microscope?z=8")
            viewer.check_clean()
            brain = RemoteArray(f"{base}/v1/metadata/demo/brain")
            values = brain[3, ::50, ::50]
            with urllib.request.urlopen(f"{base}/v1/tile/demo/brain/info.json", timeout=30) as answer:
                told = json.load(answer)
        log = server.log

    assert {urlsplit(address).path.startswith("/lab/arrays/") for address in tab.asked} == {True}
    np.testing.assert_array_equal(values, read(demo_store, "brain")[3, ::50, ::50])
    assert f'"{base}/v1/tile/demo/brain/' in json.dumps(told)
    assert "a proxy that serves this below /lab/arrays\n" in log
