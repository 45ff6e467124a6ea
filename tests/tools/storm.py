"""`python -m tests.tools.storm FOLDER N SEED SECONDS`: N random things happen to model files, evenly over the time.

Files are written in pieces, left half written, finished later, renamed, replaced, moved to other folders, deleted;
whole folders come and go; other files lie between. At the end it prints the names of the models that are whole, as a
list in JSON. Names are used once.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import time
from pathlib import Path

from tests.tools.tiny_models import tiny_model

OPEN = (".part", ".gguf.incomplete", ".txt", ".gguf~")


class Storm:
    """The files and what they are: path -> whether a whole model."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance, self.names = folder, random.Random(seed), itertools.count()
        self.prefix = f"s{seed}-"
        self.files: dict[Path, bool] = {}

    def step(self) -> None:
        """One thing happens."""
        act = self.chance.choices(
            [self.whole, self.half, self.finish, self.rename, self.replace, self.delete, self.other, self.folder_goes],
            [30, 15, 10, 12, 8, 20, 4, 1],
        )[0]
        act()

    def new(self) -> Path:
        deep = self.chance.choice(["", "", "x", "y/z", "w"])
        path = self.folder / deep / f"{self.prefix}{next(self.names)}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def some(self, whole: bool | None = None) -> Path | None:
        files = [path for path, is_whole in self.files.items() if whole in (None, is_whole)]
        return self.chance.choice(files) if files else None

    def whole(self) -> None:
        path = self.new()
        data = tiny_model(path.stem)
        cut = self.chance.randrange(len(data))
        with open(path, "wb") as file:
            file.write(data[:cut])
            file.flush()
            file.write(data[cut:])
        self.files[path] = True

    def half(self) -> None:
        path = self.new()
        data = tiny_model(path.stem)
        path.write_bytes(data[: self.chance.randrange(len(data) - 1)])
        self.files[path] = False

    def finish(self) -> None:
        path = self.some(whole=False)
        if path is not None and path.suffix == ".gguf":
            with open(path, "ab") as file:
                file.write(tiny_model(path.stem)[path.stat().st_size :])
            self.files[path] = True

    def rename(self) -> None:
        path = self.some(whole=True)
        if path is not None:
            del self.files[path]
            if self.chance.random() < 0.3:
                path.rename(path.with_suffix(self.chance.choice(OPEN)))
            else:
                new = self.new()
                path.rename(new)
                self.files[new] = True

    def replace(self) -> None:
        path = self.some(whole=True)
        if path is not None:
            part = path.with_suffix(".part")
            part.write_bytes(tiny_model(f"{path.stem} again", n_layer=3))
            part.replace(path)

    def delete(self) -> None:
        path = self.some()
        if path is not None:
            path.unlink()
            del self.files[path]

    def other(self) -> None:
        path = self.new().with_suffix(self.chance.choice(OPEN))
        path.write_bytes(self.chance.randbytes(self.chance.randrange(2000)))

    def folder_goes(self) -> None:
        gone = self.folder / self.chance.choice(["x", "y", "w"])
        shutil.rmtree(gone, ignore_errors=True)
        self.files = {path: whole for path, whole in self.files.items() if gone not in path.parents}


def main(folder: str, n_steps: str, seed: str, seconds: str) -> None:
    storm, began = Storm(Path(folder), int(seed)), time.monotonic()
    for number in range(int(n_steps)):
        storm.step()
        time.sleep(max(0.0, began + float(seconds) * number / int(n_steps) - time.monotonic()))
    print(json.dumps(sorted(path.stem for path, whole in storm.files.items() if whole)))


if __name__ == "__main__":
    main(*sys.argv[1:])
