"""Which tensors belong to an expert, by name. Pure: tables, one per framework, and their lookup.

Weights get the unit names of `ckptctl import`. A new model needs a new row of a table."""

import functools
import hashlib
import re
from typing import NamedTuple, Optional, Tuple

from . import hf, megatron, torchtitan

TABLES = hf.TABLE + torchtitan.TABLE + megatron.TABLE
NUMBER_MAX = (1 << 31) - 1
UNIT_NAME_BYTES_MAX = 255
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")  # no byte to escape, and short enough
_SLICE = re.compile(r"(.*)\[(0|[1-9][0-9]{0,9})\]", re.DOTALL)
# Units that exports of ckptctl treat apart.
RESERVED = ("trainer", "ckptd.files")
# Suffixes of stacked tensors that surely have one row per expert.
_ROWS = ("", ".weight", "_blocks")
# Last parts of names in an optimizer's state.
_STATE = ("exp_avg", "exp_avg_sq", "exp_inf", "max_exp_avg_sq", "momentum_buffer", "square_avg",
          "sum", "acc_delta", "grad_avg", "step", "master_param", "fp32_param")


class Expert(NamedTuple):
    """A tensor of one expert, or of all experts of a layer."""

    experts: str  # the list of experts: "model.layers.3.mlp.experts"
    layer: int
    expert: Optional[int]  # None: the tensor is stacked
    counts: bool  # of stacked tensors: the first dimension is the number of experts
    part: str  # "weights" or "optimizer"

    def unit(self, expert: int) -> str:
        name = f"{self.experts}.{expert}"
        return unit_name_of(name if self.part == "weights" else name + ".optimizer")


def _number(digits: str) -> Optional[int]:
    if not re.fullmatch(r"0|[1-9][0-9]{0,9}", digits):
        return None
    return int(digits) if int(digits) <= NUMBER_MAX else None


def _layer_at_end(text: str) -> Optional[int]:
    before, dot, digits = text.rpartition(".")
    return _number(digits) if dot and (before == "layers" or before.endswith(".layers")) else None


def _suffix(stacked: bool, weights: Tuple[str, ...], rest: str) -> Optional[str]:
    for weight in weights:
        if rest.startswith(weight):
            suffix = rest[len(weight):]
            if not suffix or suffix[0] == "." or (stacked and suffix[0] == "_"):
                return suffix
    return None


def _match(row: Tuple[str, bool, Tuple[str, ...]], tensor: str, part: str) -> Optional[Expert]:
    experts, stacked, weights = row
    at = tensor.find(f".{experts}.")
    layer = _layer_at_end(tensor[:at]) if at >= 0 else None
    if layer is None:
        return None
    end = at + 1 + len(experts)
    expert, rest = None, tensor[end + 1:]
    if not stacked:
        digits, dot, rest = rest.partition(".")
        expert = _number(digits) if dot else None
        if expert is None:
            return None
    suffix = _suffix(stacked, weights, rest)
    if suffix is None:
        return None
    return Expert(tensor[:end], layer, expert, stacked and suffix in _ROWS, part)


@functools.lru_cache(maxsize=1 << 14)  # one layout asks twice
def expert_of(tensor: str) -> Optional[Expert]:
    """None: an unknown name, a shared expert, a router, a dense layer."""
    head, dot, last = tensor.rpartition(".")
    part = "weights"
    if dot and last in _STATE:
        tensor, part = head, "optimizer"
    for row in TABLES:
        found = _match(row, tensor, part)
        if found:
            return found
    return None


def slice_name(tensor: str, index: int) -> str:
    """Slice `index` of a stacked tensor, as a tensor of its expert's unit."""
    return f"{tensor}[{index}]"


def parse_slice_name(name: str) -> Optional[Tuple[str, int]]:
    if not name.endswith("]"):
        return None
    found = _SLICE.fullmatch(name)
    return (found.group(1), int(found.group(2))) if found else None


def unit_name_of(name: str) -> str:
    """`name` as the name of a unit: bytes outside [A-Za-z0-9._-] become %XX. A name that is too
    long is cut and ends with a hash of all of it."""
    if not name:
        return "%"
    if name in RESERVED:
        return f"%{ord(name[0]):02X}{name[1:]}"
    if _PLAIN_NAME.fullmatch(name):
        return name
    escaped = [chr(byte) if chr(byte).isalnum() and byte < 128 or byte in b"._-" else f"%{byte:02X}"
               for byte in name.encode(errors="surrogatepass")]
    whole = "".join(escaped)
    if len(whole) <= UNIT_NAME_BYTES_MAX:
        return whole
    # `ckptctl import` uses another hash here; such names of theirs and ours differ.
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    room = UNIT_NAME_BYTES_MAX - 2 - len(digest)
    kept, size = [], 0
    for part in escaped:
        size += len(part)
        if size > room:
            break
        kept.append(part)
    return "".join(kept) + "%." + digest
