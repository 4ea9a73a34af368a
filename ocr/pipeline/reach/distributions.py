"""Which installed distributions a module is from, with those that they require, and their versions."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

SITE_FOLDERS = ("site-packages", "dist-packages")
_OPENCV = tuple(f"opencv-{contrib}python{headless}" for contrib in ("", "contrib-") for headless in ("", "-headless"))
_LIKELY = {"cv2": _OPENCV, "PIL": ("pillow", "pillow-simd")}
_REQUIREMENT = re.compile(r"^Requires-Dist: *([\w.-]+)(?!.*;.*\bextra *==)", re.MULTILINE)

_seen: dict[str, tuple[str, ...]] = {}


def distributions_of(module: str) -> tuple[str, ...]:
    """`name==version` of all that a module is installed by and all that these require; empty if nobody vouches for it.

    A version counts as it was first seen: an upgrade does not change what this process has loaded.
    """
    if module not in _seen:
        found = _find(module)
        if not found:
            return ()
        _seen[module] = found
    return _seen[module]


def _find(module: str) -> tuple[str, ...]:
    site = _site_folder(module)
    if site is None:
        return ()
    installed = _installed(site, os.stat(site).st_mtime_ns)
    top = module.split(".")[0]
    reached = _owners(installed, top)
    waiting = deque(reached)
    while waiting:
        needed = [installed[name] for name in _requirements(waiting.popleft()) if name in installed]
        new = [folder for folder in needed if folder not in reached]
        reached += new
        waiting += new
    versions = [_name_and_version(folder) for folder in reached]
    return tuple(sorted({*versions, *_loaded_otherwise(top, versions)})) if reached else ()


def _owners(installed: dict[str, str], top: str) -> list[str]:
    """Folders of the distributions that install a module; the likely ones are tried first, since there are many."""
    likely = [installed[name] for name in (_normalised(top), *_LIKELY.get(top, ())) if name in installed]
    if owners := [folder for folder in likely if top in _top_level(folder) or _lists(folder, top)]:
        return owners
    owners = [folder for folder in installed.values() if top in _top_level(folder)]
    is_shared = getattr(sys.modules.get(top), "__file__", None) is None
    if is_shared or not owners:
        owners += [folder for folder in installed.values() if not _top_level(folder) and _lists(folder, top)]
    return owners


def _loaded_otherwise(top: str, versions: list[str]) -> list[str]:
    """The version of a module that was loaded before its distribution was replaced."""
    loaded = getattr(sys.modules.get(top), "__version__", None)
    on_disk = [version.partition("==")[2] for version in versions]
    if not isinstance(loaded, str) or any(loaded.startswith(one) or one.startswith(loaded) for one in on_disk):
        return []
    return [f"{top} was loaded as {loaded}"]


def _site_folder(module: str) -> str | None:
    """The folder for installed packages that a module lies in; None if it lies elsewhere."""
    for name in (module, module.split(".")[0]):
        known = sys.modules.get(name)
        file = getattr(known, "__file__", None) or next(iter(getattr(known, "__path__", ())), None)
        if file:
            break
    else:
        file = _file_of_unloaded(module.split(".")[0])
    for folder in Path(file).parents if file else ():
        if folder.name in SITE_FOLDERS:
            return str(folder)
    return None


def _file_of_unloaded(name: str) -> str | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)


@lru_cache(maxsize=8)
def _installed(site: str, changed: int) -> dict[str, str]:
    """Per normalised name the folder that describes a distribution."""
    with os.scandir(site) as entries:
        folders = sorted(entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    return {_normalised(os.path.basename(folder).split("-")[0].removesuffix(".egg")): folder for folder in folders}


@cache
def _top_level(folder: str) -> frozenset[str]:
    """Names of the modules and packages that a distribution says it installs; many do not say."""
    return frozenset(_read(folder, "top_level.txt").split())


def _lists(folder: str, top: str) -> bool:
    """Whether a module or package is among the files of a distribution."""
    files = "\n" + _read(folder, "RECORD")
    return f"\n{top}/" in files or f"\n{top}." in files


@cache
def _requirements(folder: str) -> list[str]:
    """Normalised names of what a distribution cannot do without; optional extras are not among them."""
    header = (_read(folder, "METADATA") or _read(folder, "PKG-INFO")).split("\n\n", 1)[0]
    return [_normalised(name) for name in _REQUIREMENT.findall(header)]


def _name_and_version(folder: str) -> str:
    described = os.path.basename(folder).rsplit(".", 1)[0]
    name, _, version = described.partition("-")
    if not version:
        found = re.search(r"^Version: *(\S+)", _read(folder, "METADATA") or _read(folder, "PKG-INFO"), re.MULTILINE)
        version = found[1] if found else ""
    return f"{_normalised(name)}=={version}"


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(folder: str, name: str) -> str:
    try:
        return Path(folder, name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
