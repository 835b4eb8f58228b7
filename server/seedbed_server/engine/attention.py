"""Batched decode attention for CPUs: one gather and one product for a whole batch.

SGLang's `torch_native` backend loops over the sequences of a batch in Python, which takes more than half of a
decode step at 16 rows. The same sums over the same tokens, padded and masked; prefill is SGLang's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

__all__ = ["BACKEND", "register"]

BACKEND = "seedbed_cpu"


def register() -> None:
    """Adds the backend to SGLang's registry and to the names that its arguments accept."""
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
    from sglang.srt.server_args import add_attention_backend_choices

    class BatchedCpuAttention(TorchNativeAttnBackend):  # type: ignore[misc]
        """Decode for all sequences at once; what is special (cross attention, windows) stays SGLang's."""

        _tokens: Tensor
        _mask: Tensor | None

        def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
            super().init_forward_metadata(forward_batch)
            if not forward_batch.forward_mode.is_decode():
                return
            lengths = forward_batch.seq_lens
            longest = int(forward_batch.seq_lens_cpu.max())
            places = self.req_to_token_pool.req_to_token[forward_batch.req_pool_indices, :longest]
            beyond = torch.arange(longest)[None] >= lengths[:, None]
            # Place 0 is the padding token's: finite, and masked below.
            self._tokens = places.to(torch.int64).masked_fill_(beyond, 0)
            self._mask = None
            if bool(beyond.any()):
                mask = torch.zeros(beyond.shape, dtype=self.token_to_kv_pool.dtype)
                self._mask = mask.masked_fill_(beyond, float("-inf"))[:, None, None]

        def forward_decode(
            self,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            layer: Any,
            forward_batch: ForwardBatch,
            save_kv_cache: bool = True,
        ) -> Tensor:
            pool = self.token_to_kv_pool
            windowed = layer.sliding_window_size is not None and layer.sliding_window_size > -1
            if layer.is_cross_attention or windowed or pool.dtype != q.dtype:
                return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)  # type: ignore[no-any-return]
            if save_kv_cache and k is not None:
                pool.set_kv_buffer(
                    layer, KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc), k, v
                )
            rows, longest = self._tokens.shape
            heads, size, value_size = layer.tp_k_head_num, layer.qk_head_dim, layer.v_head_dim
            flat = self._tokens.view(-1)

            def gather(buffer: Tensor, width: int) -> Tensor:
                found = buffer.view(buffer.shape[0], -1).index_select(0, flat)
                return found.view(rows, longest, heads, width).transpose(1, 2)

            keys = gather(pool.get_key_buffer(layer.layer_id), size)
            values = gather(pool.get_value_buffer(layer.layer_id), value_size)
            # The query heads that share a key head become its query length: nothing is repeated.
            query = q.reshape(rows, heads, -1, size)
            out = torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=self._mask, scale=layer.scaling
            )
            return out.reshape(rows, layer.tp_q_head_num * value_size)

    register_attention_backend(BACKEND)(lambda runner: BatchedCpuAttention(runner))
    add_attention_backend_choices([BACKEND])
