"""T5Gemma and T5Gemma 2 in the form of their papers, in float64, written from them and not from another implementation.

T5Gemma (Zhang et al. 2025, "Encoder-Decoder Gemma"): layers of Gemma 2, the encoder without causality, cross attention with a
softmax of its own. T5Gemma 2 (Zhang et al. 2025): layers of Gemma 3, and in the decoder one softmax over its own and the
encoder's keys, with the same projections; the encoder's keys have no position. Every token of a source or a target is one:
none is hidden because its id is that of padding; as in all Gemma models, that id's vector is not learned as an input. Dropout and scaled rotary embeddings are left out.
"""
import torch
import torch.nn.functional as F


def norm(x, weight, epsilon):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * (1 + weight)


def rotate(x, base):
    """x [heads, tokens, size], by position: pairs are half a head apart."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * base ** -(torch.arange(half, dtype=x.dtype) / half)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * angles.cos() - right * angles.sin(), right * angles.cos() + left * angles.sin()], -1)


def seen(queries, keys, window, causal, second):
    """[queries, keys]: what is seen of a stack's own tokens."""
    ahead = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    if causal:
        return (ahead <= 0) & (ahead > -(window or keys))
    if window is None:
        return torch.ones_like(ahead, dtype=torch.bool)
    if second:  # as many as the window is wide, the token itself among them
        return (-ahead < (window + 1) // 2) & (ahead <= window // 2)
    return ahead.abs() <= window


class Stack:
    def __init__(self, settings, tensors, prefix, second, eoi=None):
        self.settings, self.second, self.eoi = settings, second, eoi
        self.tensors = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    def __getitem__(self, name):
        return self.tensors[name + ".weight"]

    def embed(self, ids):
        out = F.embedding(torch.tensor(ids), self["embed_tokens"], padding_idx=self.settings["pad_token_id"])
        out = out * self.settings["hidden_size"] ** 0.5
        if self.eoi in ids:
            out[[i for i, token in enumerate(ids) if token == self.eoi]] = self.tensors["embed_tokens.eoi_embedding"]
        return out

    def heads(self, name, x, count):
        return (x @ self[name].T).view(x.shape[0], count, self.settings["head_dim"]).transpose(0, 1)

    def attend(self, name, x, others, visible, base):
        """x [tokens, size] attends to itself (base: that of its rotary embedding), to `others`, or to both."""
        s = self.settings
        q = self.heads(f"{name}.q_proj", x, s["num_attention_heads"])
        if self.second:
            q = norm(q, self[f"{name}.q_norm"], s["rms_norm_eps"])
        if base:
            q = rotate(q, base)
        keys, values = [], []
        for where, rotated in ([(x, True)] if base else []) + ([(others, False)] if others is not None else []):
            k = self.heads(f"{name}.k_proj", where, s["num_key_value_heads"])
            if self.second:
                k = norm(k, self[f"{name}.k_norm"], s["rms_norm_eps"])
            keys.append(rotate(k, base) if rotated else k)
            values.append(self.heads(f"{name}.v_proj", where, s["num_key_value_heads"]))
        repeat = s["num_attention_heads"] // s["num_key_value_heads"]
        k, v = (torch.cat(parts, 1).repeat_interleave(repeat, 0) for parts in (keys, values))
        scores = q @ k.transpose(1, 2) * s["query_pre_attn_scalar"] ** -0.5
        if s.get("attn_logit_softcapping") and not self.second:
            scores = torch.tanh(scores / s["attn_logit_softcapping"]) * s["attn_logit_softcapping"]
        mixed = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v
        return mixed.transpose(0, 1).reshape(x.shape[0], -1) @ self[f"{name}.o_proj"].T

    def feed_forward(self, layer, x):
        gate = F.gelu(x @ self[f"{layer}.mlp.gate_proj"].T, approximate="tanh")
        return (gate * (x @ self[f"{layer}.mlp.up_proj"].T)) @ self[f"{layer}.mlp.down_proj"].T

    def __call__(self, ids, source=None):
        """Returns the states [tokens, hidden_size]; source: the encoder's, of a decoder."""
        s, x = self.settings, self.embed(ids)

        def around(part, before, after, x):
            return x + norm(part(norm(x, self[before], s["rms_norm_eps"])), self[after], s["rms_norm_eps"])

        for number, kind in enumerate(s["layer_types"]):
            layer, sliding = f"layers.{number}", kind == "sliding_attention"
            base = s["rope_local_base_freq"] if sliding and self.second else s["rope_theta"]
            own = seen(len(ids), len(ids), s["sliding_window"] if sliding else None, source is not None, self.second)
            other = torch.ones(len(ids), 0 if source is None else source.shape[0], dtype=torch.bool)
            merged = torch.cat([own, other], 1) if self.second else own
            x = around(lambda h: self.attend(f"{layer}.self_attn", h, source if self.second else None, merged, base),  # noqa: B023
                       f"{layer}.pre_self_attn_layernorm", f"{layer}.post_self_attn_layernorm", x)
            if source is not None and not self.second:
                x = around(lambda h: self.attend(f"{layer}.cross_attn", h, source, other, None),  # noqa: B023
                           f"{layer}.pre_cross_attn_layernorm", f"{layer}.post_cross_attn_layernorm", x)
            x = around(lambda h: self.feed_forward(layer, h),  # noqa: B023
                       f"{layer}.pre_feedforward_layernorm", f"{layer}.post_feedforward_layernorm", x)
        return norm(x, self["norm"], s["rms_norm_eps"])


def supervised_logits(config, tensors, batch):
    """Logits [supervised tokens, vocabulary] of sources batch["input_ids"] and targets batch["labels"]."""
    second = config["model_type"] == "t5gemma2"
    if second:  # one table for both stacks and the head
        encoders = "model.encoder.text_model.embed_tokens."
        tensors = tensors | {f"model.decoder.embed_tokens.{part}": tensors[encoders + part] for part in ("weight", "eoi_embedding")}
    encoder = config["encoder"]
    text = encoder["text_config"] if second else encoder
    encode = Stack(text, tensors, "model.encoder.text_model." if second else "model.encoder.", second, encoder.get("eoi_token_index"))
    decode = Stack(config["decoder"], tensors, "model.decoder.", second, encoder.get("eoi_token_index"))
    head = tensors["lm_head.out_proj.weight"] if "lm_head.out_proj.weight" in tensors else decode["embed_tokens"]
    logits = []
    for source, target in zip(batch["input_ids"], batch["labels"]):
        states = decode([config["decoder"]["bos_token_id"], *target[:-1]], encode(source))
        logits.append(states @ head.T)
    logits, cap = torch.cat(logits), config["decoder"].get("final_logit_softcapping")
    return torch.tanh(logits / cap) * cap if cap else logits
