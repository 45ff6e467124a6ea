"""The flat cache of llama.cpp builds before they used the Hugging Face layout: org_repo_file.gguf in one folder.

Places as in llama.cpp's common/common.cpp (fs_get_cache_directory) of those builds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from advisor.stores.collect import report_folder
from advisor.stores.types import StoreReport


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders that may be such a cache, the most specific first."""
    folders = [environ["LLAMA_CACHE"]] if environ.get("LLAMA_CACHE") else []
    if sys.platform == "darwin":
        return [*folders, os.path.join(home, "Library", "Caches", "llama.cpp")]
    if sys.platform == "win32":
        return [*folders, os.path.join(environ.get("LOCALAPPDATA") or os.path.join(home, "AppData/Local"), "llama.cpp")]
    return [*folders, os.path.join(environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "llama.cpp")]


def list_models(folder: str) -> StoreReport:
    """The models that lie in `folder` itself; what is below it has the new layout, which another store reads."""
    return report_folder("llama-cache", folder, below=False)
