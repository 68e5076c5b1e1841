"""Names and shapes of the model state of the bench. Pure; imports no torch."""

EXPERTS = 16
RANKS = (1, 2, 4, 8, 16)
ITEM_BYTES = 4
LAYERS_AT_LEAST = 8
WIDTHS = (1024, 512, 256, 128, 64)


def _layer(number, width):
    for part in ("w1", "w2", "w3"):
        yield f"layers.{number}.moe.experts.{part}", (EXPERTS, width, width)
    for part in ("wq", "wk", "wv", "wo"):
        yield f"layers.{number}.attention.{part}.weight", (width, width)


def product(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def _layer_bytes(width):
    return 3 * ITEM_BYTES * sum(product(shape) for _, shape in _layer(0, width))


def of_bytes(count, ranks):
    """(name, shape) of tensors of 32-bit floats of `count` bytes: layers of experts and attention
    with two moments each, and an embedding that fills the rest."""
    if ranks not in RANKS:
        raise ValueError(f"{ranks} ranks: use one of {RANKS}, which divide {EXPERTS} experts")
    width = next((width for width in WIDTHS if LAYERS_AT_LEAST * _layer_bytes(width) <= count),
                 WIDTHS[-1])
    layers, rest = divmod(count, _layer_bytes(width))
    if rest == 0 and layers:
        layers, rest = layers - 1, _layer_bytes(width)
    if layers == 0 or rest % (ITEM_BYTES * width * ranks):
        raise ValueError(f"{count} bytes: use a multiple of 1 MiB, at least 3 MiB")
    found = []
    for number in range(layers):
        for name, shape in _layer(number, width):
            found.append((name, shape))
            found += [(f"optim.state.{name}.{moment}", shape)
                      for moment in ("exp_avg", "exp_avg_sq")]
    rows = rest // (ITEM_BYTES * width)
    return [*found, ("tok_embeddings.weight", (rows, width))]
