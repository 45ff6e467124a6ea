"""What every test gets: a home of its own, a clean environment, and no quietly skipped engine test."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

pytest_plugins = ["tests.tools.engines"]

# read at start: the fixture below clears the environment of the tests
_REQUIRE_ENGINES = os.environ.get("ADVISOR_REQUIRE_ENGINES", "") not in ("", "0")
_ENGINE_FOLDER = Path(__file__).parent / "engines"

_CLEARED_PREFIXES = (
    "ADVISOR_", "CLICOLOR", "CUDA_", "GGML_", "GPU_", "HF_", "HIP_", "HSA_", "HUGGINGFACE_", "KOBOLDCPP_", "LLAMA_",
    "LMSTUDIO_", "LOCALAI_", "NVIDIA_", "OLLAMA_", "ONEAPI_", "ROCR_", "TRANSFORMERS_", "VK_", "XDG_", "ZE_",
)  # fmt: skip
_CLEARED = ("COLUMNS", "FORCE_COLOR", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "NOTIFY_SOCKET", "NO_COLOR", "PAGER")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary home folder; no variable of the machine that runs the tests can change their result."""
    folder = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_CLEARED_PREFIXES) or name in _CLEARED:
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": folder,
        "XDG_CACHE_HOME": folder / ".cache",
        "XDG_CONFIG_HOME": folder / ".config",
        "XDG_DATA_HOME": folder / ".local/share",
        "XDG_RUNTIME_DIR": folder / "run",
        "XDG_STATE_HOME": folder / ".local/state",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    return folder


# ---------------------------------------------------------------- ADVISOR_REQUIRE_ENGINES=1: a skip is a failure


_engine_tests_passed: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _REQUIRE_ENGINES and report.skipped and _ENGINE_FOLDER in collector.path.parents:
        report.outcome = "failed"
        report.longrepr = f"ADVISOR_REQUIRE_ENGINES is set, but this file was skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _REQUIRE_ENGINES and report.skipped and item.get_closest_marker("engine") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"ADVISOR_REQUIRE_ENGINES is set, but this engine test was skipped: {report.longrepr}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and "engine" in report.keywords:
        _engine_tests_passed.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # not in xdist's workers: each sees only its share
    if _REQUIRE_ENGINES and not hasattr(session.config, "workerinput") and not _engine_tests_passed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REQUIRE_ENGINES and not _engine_tests_passed:
        terminalreporter.write_line("ADVISOR_REQUIRE_ENGINES is set, but no test marked 'engine' passed", red=True)
