#!/usr/bin/env python3
"""Loads an exported model into MixtralForCausalLM and compares its logits with moetrain's.

    pip install torch transformers
    ckptctl export RUN@STEP --out DIR
    moetrain eval RUN@STEP --logits logits.f32 --json > eval.json
    python tests/golden/check_export.py DIR eval.json

eval.json names the logits file (raw fp32, [tokens, vocabulary]) and the tokens it belongs to.
Prints one line; exits 1 if a weight is missing or left over, or if ||a - b|| / ||b|| exceeds
--tolerance.
"""

import argparse
import json
import pathlib
import sys

import numpy
import torch
from transformers import MixtralForCausalLM


def load_model(folder):
    model, info = MixtralForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            sys.exit(f"{folder}: {kind.replace('_', ' ')}: {sorted(info[kind])[:5]}")
    return model.float().eval()


def load_logits(path):
    """The tokens and their logits. The file is where eval.json says, or next to eval.json if both
    were moved."""
    described = json.loads(path.read_text())["logits"]
    file = pathlib.Path(described["file"])
    if not file.exists():
        file = path.parent / file.name
    logits = numpy.fromfile(file, dtype="<f4").astype(numpy.float64)
    return described["tokens"], logits.reshape(described["shape"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="what ckptctl export wrote")
    parser.add_argument("evaluation", type=pathlib.Path, help="JSON of moetrain eval --logits")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    arguments = parser.parse_args()

    model = load_model(arguments.folder)
    tokens, ours = load_logits(arguments.evaluation)
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0].double().numpy()
    if ours.shape != theirs.shape:
        sys.exit(f"logits are {list(ours.shape)}, Hugging Face's are {list(theirs.shape)}")
    error = numpy.linalg.norm(ours - theirs) / numpy.linalg.norm(theirs)
    verdict = "agree" if error <= arguments.tolerance else "DIFFER"
    print(f"{ours.shape[0]} x {ours.shape[1]} logits {verdict}: relative error {error:.2e}, "
          f"at most {arguments.tolerance:.0e}")
    return 0 if error <= arguments.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
