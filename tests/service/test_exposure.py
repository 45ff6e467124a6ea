"""What `systemd-analyze security --user` says of the unit: no more than SECURITY.md tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.user_manager import UserManager, start_user_manager

ROOT = Path(__file__).resolve().parents[2]
STATED = re.compile(r"^\| `(advisor\.service|advisor-strict\.conf)` \| (\d\.\d) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def manager():
    with start_user_manager() as manager:
        yield manager


@pytest.mark.parametrize("name", ["advisor.service", "advisor-strict.conf"])
def test_the_exposure_is_what_is_told(manager: UserManager, tmp_path: Path, name: str) -> None:
    unit = tmp_path / "advisor.service"
    text = (ROOT / "systemd/advisor.service").read_text()
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    if name != unit.name:
        (tmp_path / "advisor.service.d").mkdir()
        (tmp_path / "advisor.service.d/strict.conf").write_text((ROOT / "systemd" / name).read_text())
    ran = manager.run("systemd-analyze", "--user", "security", "--offline=true", "--no-pager", unit)
    exposure = re.search(r"Overall exposure level for .*: (\d+\.\d)", ran.stdout)
    assert exposure is not None, ran.stdout + ran.stderr
    print(name, exposure[0])
    stated = dict(STATED.findall((ROOT / "SECURITY.md").read_text()))
    assert float(exposure[1]) <= float(stated[name])
