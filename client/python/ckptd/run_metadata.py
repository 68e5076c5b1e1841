"""Metadata of a run: a JSON object that ckptd keeps with it. Exports of ckptctl write its member
`hf_config` as config.json. Imports no torch."""

import hashlib
import json
from typing import Any, Dict, Mapping, Optional

from . import errors

CONFIG = "hf_config"
BYTES_MAX = 1 << 20  # of the JSON text: ckptd's own limit, like the next
DEPTH_MAX = 64


def encode(metadata: Mapping[str, Any]) -> bytes:
    """The JSON text. Equal metadata have equal texts, whatever the order of their members. Refuses
    metadata that ckptd would refuse."""
    try:
        plain = json.loads(json.dumps(dict(metadata)))  # keys become strings
        raw = json.dumps(plain, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
        depth = _depth(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidArgument(
            f"metadata: it cannot become JSON: {error}; give a dict of strings, finite numbers, "
            "lists and dicts") from None
    if len(raw) > BYTES_MAX:
        raise errors.InvalidArgument(
            f"metadata: it is {len(raw)} bytes of JSON, the most is {BYTES_MAX}; leave something "
            "out")
    if depth > DEPTH_MAX:
        raise errors.InvalidArgument(
            f"metadata: it is nested {depth} deep, the most is {DEPTH_MAX}; make it flatter")
    return raw


def _depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0)


def copy(metadata: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """The metadata as JSON keeps them: a copy that the caller does not change."""
    return None if metadata is None else json.loads(encode(metadata))


def config_of(metadata: Optional[Mapping[str, Any]]) -> Any:
    return (metadata or {}).get(CONFIG)


def with_config(metadata: Optional[Mapping[str, Any]], config: Any) -> Optional[Dict[str, Any]]:
    """The metadata with the config of another rank; None: with none."""
    rest = {name: value for name, value in (metadata or {}).items() if name != CONFIG}
    return {**rest, CONFIG: config} if config is not None else rest or None


def summary(metadata: Optional[Mapping[str, Any]]) -> Optional[str]:
    """A short text by which ranks compare their metadata. The config is not compared: it may have
    paths of one node, and rank 0's counts."""
    rest = with_config(metadata, None)
    if rest is None:
        return None
    raw = encode(rest)
    return f"{len(raw)} bytes, hash {hashlib.blake2b(raw, digest_size=8).hexdigest()}"
