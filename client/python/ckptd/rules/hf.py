"""Names of experts in models of Hugging Face and Mistral; the same table as `ckptctl import`."""

# (list of experts, stacked: the first dimension counts the experts, names of the weights)
TABLE = (
    # Mixtral, Phi-3.5-MoE, MiniMax
    ("block_sparse_moe.experts", False, ("w1", "w2", "w3")),
    # Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and V3, OLMoE, GLM-4-MoE
    ("mlp.experts", False, ("gate_proj", "up_proj", "down_proj")),
    # GPT-OSS, Qwen3-VL-MoE; Mixtral and Qwen-MoE in memory, from transformers 5 on
    ("mlp.experts", True, ("gate_up_proj", "down_proj")),
    # Llama 4
    ("feed_forward.experts", True, ("gate_up_proj", "down_proj")),
    # Llama 4 with unstacked experts; Jamba
    ("feed_forward.experts", False, ("gate_proj", "up_proj", "down_proj")),
    # Mixtral in Mistral's own naming
    ("feed_forward.experts", False, ("w1", "w2", "w3")),
)
