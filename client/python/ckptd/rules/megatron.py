"""Names of experts in models of Megatron-Core, as ckptd.megatron writes them."""

TABLE = (
    # GroupedMLP, TEGroupedMLP, SequentialMLP: stacked [E, ...] over all expert-parallel ranks
    ("mlp.experts.experts", True, ("linear_fc1", "linear_fc2")),
    # with singleton_local_shards
    ("mlp.experts.experts", False, ("linear_fc1", "linear_fc2")),
)
