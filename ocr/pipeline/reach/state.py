"""The state of an object as far as two runs can compare it: arrays by their bytes, others as they would be pickled."""

from __future__ import annotations

import copyreg
import logging
import random
import struct
import sys
import threading
import weakref
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

import numpy as np

from ocr.errors import ConfigError

TRANSIENT = (
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
"""What code may use without its output depending on it."""
_RANDOM = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)


def array_parts(value: Any) -> tuple[str | bytes, ...] | None:
    """Type, shape and bytes of an array or tensor; None for anything else."""
    if isinstance(value, np.generic) or type(value) in (np.ndarray, np.memmap):
        array = np.asarray(value)
        return None if array.dtype.hasobject else (repr(array.dtype), str(array.shape), array.tobytes())
    torch = sys.modules.get("torch")
    # Sparse and quantised tensors have parts, and one without memory has no bytes: they count as they are pickled.
    if torch is not None and isinstance(value, torch.Tensor) and _has_bytes(value):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return str(value.dtype), str(tuple(value.shape)), flat.view(torch.uint8).numpy().tobytes()
    return None


def _has_bytes(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided" and not (tensor.is_meta or tensor.is_quantized)


def state_of(value: Any, where: str) -> tuple[Any, ...] | str:
    """What would make an equal object: a function, its arguments and a state; or the name of a global object."""
    torch = sys.modules.get("torch")
    if isinstance(value, _RANDOM) or (torch is not None and isinstance(value, torch.Generator)):
        refuse(where, value, "it draws at random. Make the stage a RandomStage, which is given a generator")
    if isinstance(value, struct.Struct):
        return struct.Struct, (value.format,)
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        return (omegaconf.OmegaConf.to_container(value, resolve=True),)  # Its own state holds caches and the parent.
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        found = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception as error:
        refuse(where, value, f"{error}. Make it in the method that uses it, or leave it out in `__getstate__`", error)
    if isinstance(found, str):
        return found
    function, arguments, state, items, pairs = (*found, None, None, None)[:5]
    return function, arguments, *_by_name(value, state), list(items or ()), list(pairs or ())


def _by_name(value: Any, state: Any) -> tuple[Any, ...]:
    """A state with the names of its attributes, so that messages can tell them."""
    if isinstance(state, list) and is_dataclass(value) and len(state) == len(fields(value)):
        return (dict(zip((field.name for field in fields(value)), state, strict=True)),)
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        return state
    return (state,)


def refuse(where: str, value: Any, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise for what no two runs can compare."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise ConfigError(
        f"transforms: {where} is of type {kind}, which two runs cannot compare, so samples cannot be cached: {reason}; "
        "or set data.cache=off",
        setting=where,
        value=kind,  # Not the object: errors are pickled, and it may be a lock.
    ) from cause
