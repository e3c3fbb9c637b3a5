"""The web app's files: who gets them, how long they keep them, and what they may load."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.harness import Running, running
from strata.server.pages import WEB, folder_hash, is_page
from strata.server.settings import ServerSettings

VENDOR = WEB / "vendor"
OWN = [file for file in sorted(WEB.rglob("*")) if file.is_file() and VENDOR not in file.parents]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerSettings(api_key="k", allow_origin="https://ai.example, null")) as up:
        yield up


def assets(server: Running) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', server.http.get("/").text)


def test_the_page_needs_no_key_and_is_asked_for_again(server: Running) -> None:
    page = server.http.get("/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    again = server.http.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.http.head("/").status_code == 200


def test_what_the_page_loads_is_kept_for_good(server: Running) -> None:
    found = assets(server)
    assert len(found) >= 4
    for path in found:
        assert path.startswith(f"web/{folder_hash(WEB)}/"), "relative, for prefixes, and with the files' hash"
        file = server.http.get(f"/{path}")
        assert file.status_code == 200
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["content-type"].partition(";")[0] in {"text/javascript", "text/css", "image/svg+xml"}


@pytest.mark.parametrize("path", ["/", "/web"])
def test_only_own_files_are_allowed_to_the_browser(server: Running, path: str) -> None:
    answer = server.http.get("/" if path == "/" else f"/{assets(server)[-1]}")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/web/", "/web/0000/app.js", "/web/../v1/status", "/web/%2e%2e/v1/status", "/web//v1/status", "/web"]
)
def test_the_open_paths_lead_nowhere_else(server: Running, path: str) -> None:
    assert server.http.get(path).status_code in {401, 404}
    version = folder_hash(WEB)
    for way in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd"):
        assert server.http.get(f"/web/{version}/{way}").status_code in {401, 404}


def test_other_methods_are_no_way_in(server: Running) -> None:
    assert is_page("GET", "/") and is_page("HEAD", "/web/x")
    assert not is_page("POST", "/") and not is_page("GET", "/v1/status") and not is_page("GET", "/website")
    assert server.http.post("/").status_code == 401


def test_a_proxys_browsers_get_the_files_though_not_the_api(server: Running) -> None:
    """A browser names the page's origin for module scripts; a proxy may have changed the Host."""
    headers = {"Origin": "https://elsewhere.example", "Authorization": "Bearer k"}
    assert server.http.get(f"/{assets(server)[-1]}", headers=headers).status_code == 200
    assert server.http.get("/v1/models", headers=headers).status_code == 403


def test_a_listed_origins_name_may_be_the_host(server: Running) -> None:
    assert server.http.get("/health", headers={"Host": "ai.example"}).status_code == 200
    assert server.http.get("/health", headers={"Host": "other.example"}).status_code == 403
    assert server.http.get("/health", headers={"Host": ""}).status_code == 403


def test_a_changed_file_has_another_address(tmp_path: Path) -> None:
    copy = tmp_path / "web"
    shutil.copytree(WEB, copy)
    assert folder_hash(copy) == folder_hash(WEB)
    (copy / "app.js").write_text((copy / "app.js").read_text() + "\n")
    assert folder_hash(copy) != folder_hash(WEB)


@pytest.mark.parametrize("file", [f for f in OWN if f.suffix == ".js"], ids=lambda f: f.relative_to(WEB).as_posix())
def test_every_import_is_a_file_here(file: Path) -> None:
    for target in re.findall(r'^import\b[^"]*"([^"]+)";', file.read_text(), re.MULTILINE):
        assert target.startswith(("./", "../")), target
        assert (file.parent / target).resolve().is_file(), target


def test_no_own_file_names_another_server() -> None:
    for file in OWN:
        outside = set(re.findall(r"https?://[^\s\"'`<)]+", file.read_text())) - {"http://www.w3.org/2000/svg"}
        assert not outside, f"{file.name} names {outside}"


def test_own_files_stay_small() -> None:
    """scripts/sizes looks at Python and C++ alone."""
    for file in OWN:
        limit = 600 if file.suffix == ".css" else 300
        assert file.read_text().count("\n") <= limit, file.name


def test_libraries_are_the_listed_ones() -> None:
    table = json.loads((VENDOR / "table.json").read_text())
    assert set(table) == {file.name for file in VENDOR.glob("*.js")}
    for name, entry in table.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"], (
            f"{name} was changed by hand"
        )
        assert (VENDOR / f"{entry['package']}.LICENSE").is_file()
        assert entry["licence"] in {"MIT", "Apache-2.0"}
