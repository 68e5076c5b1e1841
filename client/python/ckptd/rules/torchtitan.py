"""Names of experts in models of torchtitan: stacked [E, ...] tensors."""

TABLE = (
    ("moe.experts", True, ("w1", "w2", "w3")),
    # from 0.3.0 on
    ("moe.routed_experts.inner_experts", True, ("w1_EFD", "w2_EDF", "w3_EFD")),
)
