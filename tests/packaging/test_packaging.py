"""The rules, the units and the data must be found wherever advisor runs from: checkout, editable, wheel, sdist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted(path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules").rglob("*.toml"))

# run with the import path of one kind of installation, in a folder that helps none of them
PROBE = """
import json, os, advisor
from advisor.rule_folders import RuleFolders, shipped_folder, systemd_folder
folders = RuleFolders(user="", system="")
names = [name for folder in ("", "arch", "engines") for name in folders.names(folder)]
print(json.dumps({
    "package": os.path.dirname(advisor.__file__),
    "rules": shipped_folder(),
    "names": sorted(names),
    "readable": all(folders.document(name) is not None for name in names),
    "units": os.listdir(systemd_folder()),
    "data": os.listdir(os.path.join(os.path.dirname(advisor.__file__), "data")),
}))
"""


def run(*command: str | Path, cwd: Path = ROOT, path: Path | None = None) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environ["PYTHONPATH"] = str(path)
    result = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def probe(cwd: Path, python: str | Path = sys.executable, path: Path | None = None) -> dict[str, object]:
    return json.loads(run(python, "-P" if sys.version_info >= (3, 11) else "-B", "-c", PROBE, cwd=cwd, path=path))


def check(found: dict[str, object], package: Path, rules: Path) -> None:
    assert found["package"] == str(package)
    assert found["rules"] == str(rules)
    assert found["names"] == RULES
    assert found["readable"] is True
    assert {"README.md", "advisor.service", "advisor-strict.conf"} <= set(found["units"])
    assert "llama-3-8b-q4_k_m.json.gz" in found["data"]


@pytest.fixture(scope="session")
def archives(tmp_path_factory):
    """The sdist of this tree, and the wheel built out of that sdist: (sdist, wheel)."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_checkout(tmp_path):
    check(probe(tmp_path, path=ROOT), ROOT / "advisor", ROOT / "rules")


def test_editable_install(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    # hatchling and advisor's dependencies come from where the tests run; .pth files inside that folder are not
    # followed, so an editable install there cannot stand in for the one made here
    (site / "tests.pth").write_text("\n".join(entry for entry in sys.path if entry.endswith("site-packages")))
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "--editable", ROOT)
    check(probe(tmp_path, python), ROOT / "advisor", ROOT / "rules")


def test_wheel(tmp_path, archives):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--target", tmp_path / "site", archives[1])
    package = tmp_path / "site/advisor"
    check(probe(tmp_path, path=tmp_path / "site"), package, package / "_rules")


def test_unpacked_sdist(tmp_path, archives):
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (root,) = tmp_path.glob("gguf_advisor-*")
    check(probe(tmp_path, path=root), root / "advisor", root / "rules")


def test_the_wheel_holds_the_package_and_nothing_else(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"advisor"}
    assert "advisor/data/llama-3-8b-q4_k_m.json.gz" in names
    assert {f"advisor/_rules/{name}" for name in RULES} <= set(names)
    assert "advisor/_systemd/advisor.service" in names
    assert not [name for name in names if "__pycache__" in name]
    assert {name for name in names if "/licenses/" in name} == {
        f"{next(top for top in tops if top.endswith('.dist-info'))}/licenses/LICENSE"
    }


def test_the_sdist_can_run_its_own_tests(archives):
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "README.md", "LICENSE", "tests/conftest.py", "advisor/__init__.py"} <= names
