"""XLNet: one stream of content, or two, with a memory."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.names import check_terms
from relpos.torch._transformers.interface.registry import Terms, attend

#: Subtracted by the model where a query does not see a key.
HIDDEN = -1e30

#: The types of tokens (L, B) in a call of a model, of which its layers get pairs alone.
_TYPES: ContextVar[torch.Tensor | None] = ContextVar("_TYPES", default=None)


class Operands(NamedTuple):
    """Keys, values and terms that both streams share."""

    key: torch.Tensor
    value: torch.Tensor
    terms: Terms
    #: The type of each key, one-hot (B, 1, Lk, types), if tokens have types.
    types: torch.Tensor | None


@replaces("xlnet.XLNetModel")
class _XLNetModel(Swapped):
    """Makes no array of pairs of segments: attention reads the types of tokens."""

    attends = False

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        mems: Any = None,
        perm_mask: torch.Tensor | None = None,
        target_mapping: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        input_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_mems: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **keywords: Any,
    ) -> Any:
        # what else the model does not read, it takes
        check_terms(keywords, attention_mask)
        types = None if token_type_ids is None else token_type_ids.transpose(0, 1)
        reset = _TYPES.set(types)
        try:
            original: Any = super()
            return original.forward(
                input_ids=input_ids,
                attention_mask=attention_mask,
                mems=mems,
                perm_mask=perm_mask,
                target_mapping=target_mapping,
                input_mask=input_mask,
                inputs_embeds=inputs_embeds,
                use_mems=use_mems,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
                return_dict=return_dict,
                **keywords,
            )
        finally:
            _TYPES.reset(reset)


@replaces("xlnet.XLNetRelativeAttention")
class _XLNetRelativeAttention(Swapped):
    """Attention by `position_query` and `rel_key`, and columns for types of tokens."""

    def forward(
        self,
        h: torch.Tensor,
        g: torch.Tensor | None,
        attn_mask_h: torch.Tensor | None,
        attn_mask_g: torch.Tensor | None,
        r: torch.Tensor,
        seg_mat: torch.Tensor | None,
        mems: torch.Tensor | None = None,
        target_mapping: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> Any:
        if seg_mat is not None:
            raise ValueError(
                "seg_mat: got a Tensor; expected None, as attention by relpos gets the "
                "types of tokens from XLNetModel"
            )
        keys = h
        if mems is not None and mems.dim() > 1:
            keys = torch.cat([mems, h], dim=0)
        operands = self._operands(keys, r, len(h))
        out, weights = self._stream(h, operands, attn_mask_h, None, output_attentions)
        outputs = (self.post_attention(h, out), None)
        if g is not None:
            out, more = self._stream(
                g, operands, attn_mask_g, target_mapping, output_attentions
            )
            outputs = (outputs[0], self.post_attention(g, out))
            weights = weights, more
        return (*outputs, weights) if output_attentions else outputs

    def _operands(self, rows: torch.Tensor, r: torch.Tensor, queries: int) -> Operands:
        """Return what `rows`, (Lk, B, d_model), are for the queries of a stream."""
        keys = len(rows)
        if r.stride(1) == 0:  # in evaluation all items of a batch have the same
            r = r[:, :1]
        table = _project(r.to(self.r.dtype), self.r)
        terms: Terms = {
            "rel_key": table[0] if len(table) == 1 else table,
            # Row p is of distance Lk - p.
            "min_relative_position": -keys,
            "query_offset": keys - queries,
        }
        key = _project(rows, self.k)
        one_hot = None
        types = _TYPES.get()
        if types is not None:
            memory = types.new_zeros(keys - queries, types.shape[1])  # of type 0
            types = torch.cat([memory, types]).T
            kinds = types.unique()
            one_hot = (types[:, None, :, None] == kinds).to(key.dtype)
            columns = one_hot.expand(-1, key.shape[1], -1, -1)
            key = torch.cat([key, columns], dim=-1)
        return Operands(key, _project(rows, self.v), terms, one_hot)

    def _stream(
        self,
        rows: torch.Tensor,
        operands: Operands,
        mask: torch.Tensor | None,
        mapping: torch.Tensor | None,
        weighed: bool,
    ) -> Any:
        """Return attention of one stream, (rows, B, H, D), and weights (Lq, Lk, B, H).

        A mapping (M, L, B) says to which token of the text each row belongs.
        """
        query = _project(rows, self.q)
        if mapping is not None:
            query = torch.einsum("bnmd,mlb->bnld", query, mapping.to(query.dtype))
        terms = self._terms_of(query, operands)
        if operands.types is not None:
            query = self._widened(query, operands.types)
        out, weights = attend(
            query,
            operands.key,
            operands.value,
            _mask_of(mask),
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=self.scale,
            weighed=weighed,
            **terms,
        )
        out = out.permute(2, 0, 1, 3)
        if mapping is not None:
            out = torch.einsum("lbnd,mlb->mbnd", out, mapping.to(out.dtype))
        return out, None if weights is None else weights.permute(2, 3, 0, 1)

    def _terms_of(self, query: torch.Tensor, operands: Operands) -> Terms:
        """Return the terms of a stream; its queries for the table have no types."""
        terms = operands.terms.copy()
        if operands.types is None:
            terms["pos_bias_u"] = self.r_w_bias
            terms["pos_bias_v"] = self.r_r_bias
        else:
            terms["position_query"] = (query + self.r_r_bias[:, None]) * self.scale
        return terms

    def _widened(self, query: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """Return queries of content, with a column for each type of keys.

        A pair of one type gets another number than a pair of two. What all keys get
        changes no weight: the difference, for keys of the query's own type.
        """
        same, other = self.seg_embed
        difference = same - other
        products = query @ difference[..., None]
        products = products + (self.r_s_bias * difference).sum(-1)[:, None, None]
        columns = products * types[:, :, -query.shape[2] :]
        return torch.cat([query + self.r_w_bias[:, None], columns], dim=-1)


def _project(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return rows (L, B, d_model) by a weight (d_model, H, D), as (B, H, L, D)."""
    return torch.einsum("ibh,hnd->bnid", rows, weight)


def _mask_of(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a mask of the model, (Lq, Lk, B, 1), 1 where it hides, as attention's."""
    if mask is None:
        return None
    if not torch.compiler.is_compiling() and bool((mask <= 0).all()):
        return None  # as of most calls, which hide nothing
    mask = mask.permute(2, 3, 0, 1).contiguous()
    visible = mask <= 0
    if not torch.compiler.is_compiling() and bool(visible.any(-1).all()):
        return visible
    # A query that sees no key gets the mean of all values, as in the model: the number
    # that hides absorbs the scores.
    return mask.float() * HIDDEN
