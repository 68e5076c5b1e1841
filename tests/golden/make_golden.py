#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers", "numpy", "safetensors"]
# ///
"""Makes the golden files of tests/golden with PyTorch and Hugging Face transformers.

    pip install torch transformers
    python tests/golden/make_golden.py            # writes tests/golden/*.safetensors
    python tests/golden/make_golden.py --check    # recomputes and compares, writes nothing

The reference is transformers' own MixtralForCausalLM and its own loss, torch.optim.AdamW and
torch.nn.utils.clip_grad_norm_. The files in the repository come from transformers MADE_WITH, on
which writing beside this script insists; --check and --out take any version. In every version
check_auxiliary_loss() and check_loss() stop if it computes another loss (some apply softmax to the
router's output twice). Versions 4 and 5 keep experts differently; tensors are read and written
under the names of version 4, which are those of published checkpoints.

Each file is one case of CASES and holds, for a model small enough to be checked in:
    metadata    config (config.json of the model), training (optimizer settings), versions
    initial/N   parameter N before the first step
    tokens, targets   int32 [steps, micro_batches, sequences, seq_len]; target -100 has no loss
    logits      of the first micro-batch before the first step
    losses      [steps], cross-entropy plus auxiliary_loss times its coefficient
    auxiliary   [steps], mean of the micro-batches' auxiliary losses
    norms       [steps], L2 norm of the whole gradient before clipping
    grad/N      gradient of the first step, before clipping
    final/N     parameter N after the last step

A weight file is accepted only if every routing decision in every step is clear: probabilities of
neighbouring ranks differ by at least MARGIN, from the first choice to the first expert not chosen.
Otherwise rounding could route a token elsewhere and no tolerance would mean anything.
"""

import argparse
import json
import pathlib
import sys

import numpy
import torch
import transformers
from safetensors.numpy import load_file, save_file
from transformers import MixtralConfig, MixtralForCausalLM

MADE_WITH = "4.57.6"
HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 2e-6  # of --check: ||a - b|| / ||b||; tests/golden/golden_test.cc has 1e-5
MARGIN = 1e-3
STEPS = 3
SEEDS = range(10_000)

BASE = dict(
    vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, head_dim=8, num_local_experts=4,
    num_experts_per_tok=2, max_position_embeddings=8, rope_theta=1e4,
    rope_parameters=dict(rope_type="default", rope_theta=1e4), rms_norm_eps=1e-5,
    router_aux_loss_coef=0.05, output_router_logits=True, router_jitter_noise=0.0,
    sliding_window=None, attention_dropout=0.0, hidden_act="silu", tie_word_embeddings=False,
    initializer_range=0.02, bos_token_id=None, eos_token_id=None, use_cache=False)
TRAINING = dict(
    micro_batches=2, sequences=3, learning_rate=2e-3, beta1=0.9, beta2=0.95, eps=1e-8,
    weight_decay=0.1, clip_norm=0.0)

# name: (changes to BASE, changes to TRAINING, what check_case() insists on)
CASES = {
    "top1": (dict(num_experts_per_tok=1), {}, "plain"),
    "top2": ({}, {}, "plain"),
    "grouped_queries": (dict(num_key_value_heads=2), {}, "plain"),
    "idle_expert": (dict(num_local_experts=5), {}, "idle"),
    "clipping": ({}, dict(clip_norm=0.25), "clipped"),
}
IDLE = 4  # the expert that gets no token in "idle_expert"


class Unclear(Exception):
    """This seed routes some token too close to a tie, or misses what the case is about."""


def named_tensors(model, of):
    """(name as in version 4, of(parameter) or the view that this name means), in one order."""
    for name, parameter in model.named_parameters():
        tensor = of(parameter)
        name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("experts.gate_up_proj"):  # version 5: [experts, 2 * intermediate, hidden]
            down = of(model.get_parameter(name.replace("gate_up", "down")
                                          .replace(".block_sparse_moe.", ".mlp.")))
            for expert, (gate_up, w2) in enumerate(zip(tensor, down)):
                prefix = name.replace("gate_up_proj", f"{expert}.")
                w1, w3 = gate_up.chunk(2)
                yield from ((prefix + f"{w}.weight", t)
                            for w, t in (("w1", w1), ("w2", w2), ("w3", w3)))
        elif not name.endswith("experts.down_proj"):
            yield name, tensor


def make_model(changes, seed):
    config = MixtralConfig(**{**BASE, **changes}, attn_implementation="eager",
                           experts_implementation="eager")
    model = MixtralForCausalLM(config).float().train()
    assert model.config._attn_implementation == "eager"
    assert config.head_dim == BASE["head_dim"] and config.sliding_window is None
    generator = torch.Generator().manual_seed(seed)
    for name, values in named_tensors(model, lambda p: p.data):
        noise = torch.randn(values.shape, generator=generator)
        if "norm" in name:
            values.copy_(1 + 0.1 * noise)
        elif "gate.weight" in name:
            values.copy_(0.35 * noise)  # logits of order one: neither ties nor saturation
        else:
            values.copy_(0.25 * noise)
    return model


def starve_expert(model):
    """Router rows u, -u, w, -w, 0: the best two of the first four are above zero, always."""
    for name, rows in named_tensors(model, lambda p: p.data):
        if name.endswith("gate.weight"):
            rows[1], rows[3], rows[IDLE] = -rows[0], -rows[2], 0


def make_batches(config, training, seed):
    shape = (STEPS, training["micro_batches"], training["sequences"],
             config.max_position_embeddings)
    generator = torch.Generator().manual_seed(seed + 1_000_000)
    tokens = torch.randint(0, config.vocab_size, shape, generator=generator)
    targets = torch.full_like(tokens, -100)  # as the model's own loss shifts labels
    targets[..., :-1] = tokens[..., 1:]
    return tokens, targets


def check_routing(config, router_logits):
    """Raises Unclear near a tie. Returns the chosen experts."""
    k = config.num_experts_per_tok
    probabilities = torch.softmax(torch.cat(router_logits).detach().double(), dim=-1)
    ranked, experts = probabilities.sort(dim=-1, descending=True)
    if (ranked[:, :k] - ranked[:, 1:k + 1]).min() < MARGIN:
        raise Unclear
    return experts[:, :k]


def check_auxiliary_loss(config, router_logits, experts, reported):
    """E * sum over k, e of f_ke * P_e, softmax applied once, all layers together."""
    mean = torch.softmax(torch.cat(router_logits).detach().double(), dim=-1).mean(dim=0)
    chosen = torch.nn.functional.one_hot(experts, config.num_local_experts).double().mean(dim=0)
    expected = config.num_local_experts * (chosen * mean).sum()
    assert abs(reported.item() - expected.item()) < 1e-5 * expected.item(), "another auxiliary loss"


def check_loss(config, output, targets):
    entropy = torch.nn.functional.cross_entropy(
        output.logits.flatten(0, -2).detach().double(), targets.flatten(), ignore_index=-100)
    expected = entropy + config.router_aux_loss_coef * output.aux_loss.detach()
    assert abs(output.loss.item() - expected.item()) < 1e-5 * expected.item(), "another loss"


def make_optimizer(model, training):
    """Matrices decay, the one-dimensional scales of RMSNorm do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    scales = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=training["weight_decay"]),
              dict(params=scales, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=training["learning_rate"], eps=training["eps"],
                             betas=(training["beta1"], training["beta2"]), foreach=False)


def parameters_of(model, prefix):
    return {f"{prefix}/{n}": t.clone().numpy() for n, t in named_tensors(model, lambda p: p.data)}


def gradients_of(model):
    # An expert without tokens has no gradient in PyTorch; it must decay like the others, so it gets
    # a zero one.
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return {f"grad/{n}": t.clone().numpy() for n, t in named_tensors(model, lambda p: p.grad)}


def run_micro_batch(model, tokens, targets, micro_batches):
    output = model(input_ids=tokens, labels=tokens)
    experts = check_routing(model.config, output.router_logits)
    check_auxiliary_loss(model.config, output.router_logits, experts, output.aux_loss)
    check_loss(model.config, output, targets)
    (output.loss / micro_batches).backward()
    return output, experts


def train(model, training, tokens, targets):
    tensors = parameters_of(model, "initial")
    optimizer = make_optimizer(model, training)
    losses, auxiliary, norms, used = [], [], [], set()
    count = training["micro_batches"]
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        outputs = []
        for i in range(count):
            output, experts = run_micro_batch(model, tokens[step, i], targets[step, i], count)
            outputs.append(output)
            used |= set(experts.flatten().tolist())
        gradients = gradients_of(model)
        limit = training["clip_norm"] or float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
        losses.append(sum(o.loss.item() for o in outputs) / count)
        auxiliary.append(sum(o.aux_loss.item() for o in outputs) / count)
        if step == 0:
            tensors |= gradients
            tensors["logits"] = outputs[0].logits.detach().numpy()
    tensors |= parameters_of(model, "final")
    tensors |= {name: numpy.array(values, dtype=numpy.float64) for name, values in
                [("losses", losses), ("auxiliary", auxiliary), ("norms", norms)]}
    tensors |= {"tokens": tokens.int().numpy(), "targets": targets.int().numpy()}
    return tensors, used


def check_case(kind, config, training, tensors, used):
    everyone = set(range(config.num_local_experts))
    if used != (everyone - {IDLE} if kind == "idle" else everyone):
        raise Unclear
    assert (tensors["norms"].min() > 2 * training["clip_norm"]) if kind == "clipped" \
        else training["clip_norm"] == 0


def make_case(changes, training_changes, kind):
    training = {**TRAINING, **training_changes}
    for seed in SEEDS:
        model = make_model(changes, seed)
        if kind == "idle":
            starve_expert(model)
        tokens, targets = make_batches(model.config, training, seed)
        try:
            tensors, used = train(model, training, tokens, targets)
            check_case(kind, model.config, training, tensors, used)
        except Unclear:
            continue
        return model.config, training, tensors, seed
    raise SystemExit("no seed gives clear routing")


def write(path, config, training, tensors, seed):
    metadata = {
        "config": json.dumps({**config, "model_type": "mixtral"}, sort_keys=True),
        "training": json.dumps(training, sort_keys=True), "seed": str(seed),
        "torch": torch.__version__, "transformers": transformers.__version__}
    save_file({n: numpy.ascontiguousarray(t) for n, t in tensors.items()}, path, metadata)
    print(f"{path}: seed {seed}, losses {tensors['losses']}, norms {tensors['norms']}, "
          f"{path.stat().st_size} bytes")


def check(path, tensors):
    """Compares with the file. Returns whether they agree."""
    written = load_file(path)
    assert written.keys() == tensors.keys(), f"{path}: holds other tensors"
    worst, name = 0.0, "nothing"
    for key, expected in written.items():
        size = numpy.linalg.norm(expected.astype(numpy.float64)) or 1.0
        error = numpy.linalg.norm(tensors[key].astype(numpy.float64) - expected) / size
        worst, name = max((worst, name), (float(error), key))
    print(f"{path}: {'agrees' if worst <= TOLERANCE else 'DIFFERS'}, worst {name} by {worst:.1e}")
    return worst <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="default: beside the script")
    parser.add_argument("--check", action="store_true", help="compare with the files in --out")
    parser.add_argument("cases", nargs="*", help="only these", metavar="CASE")
    arguments = parser.parse_args()
    writes_here = arguments.out.resolve() == HERE and not arguments.check
    assert not writes_here or transformers.__version__ == MADE_WITH, (
        f"transformers is {transformers.__version__}; use --check or --out, or pip install "
        f"transformers=={MADE_WITH} to write the checked-in files anew")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    agree = True
    for name in arguments.cases or CASES:
        config, training, tensors, seed = make_case(*CASES[name])
        path = arguments.out / f"{name}.safetensors"
        if arguments.check:
            agree = check(path, tensors) and agree
        else:
            write(path, {**BASE, **CASES[name][0]}, training, tensors, seed)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
