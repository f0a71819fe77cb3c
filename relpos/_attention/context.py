"""Gradients of `relpos.attention`: what its context holds, and the call backwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic

from relpos._attention.gradients import Saved, differentiate
from relpos._attention.problem import Problem
from relpos._attention.results import Gradients
from relpos._checks import Array
from relpos._core import memory_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class AttentionContext(Generic[Gradients]):
    """What the gradients of one call need, as returned by ``return_context=True``.

    It holds references to the inputs and the result, the maximum and the sum of each
    row's softmax (its lse in two parts, so that nothing of it is rounded away), the
    options and the dropout seed, and can be used more than once. Changing the numbers
    in an input or in the result makes later gradients wrong; resizing one makes
    `backward` raise.

    See Also
    --------
    attention : Returns it, as `AttentionOutput.context`.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.ones((1, 2, 4))
    >>> context = relpos.attention(x, x, x, return_context=True).context
    >>> context.backward(np.ones((1, 2, 4)), wrt=["value"]).value
    array([[[1., 1., 1., 1.],
            [1., 1., 1., 1.]]])
    """

    __slots__ = ("_layouts", "_problem", "_saved")

    def __init__(self, problem: Problem, saved: Saved) -> None:
        self._problem = problem
        self._saved = saved
        self._layouts = {name: _layout(array) for name, array in self._arrays()}

    def __reduce__(self) -> tuple[Any, ...]:  # a copy's arrays lie elsewhere
        return AttentionContext, (self._problem, self._saved)

    def __repr__(self) -> str:
        names = ", ".join(self._problem.inputs)
        return f"<AttentionContext of {names}: out {self._saved.out.shape}>"

    def backward(
        self,
        grad_out: ArrayLike | None,
        *,
        grad_lse: ArrayLike | None = None,
        wrt: Iterable[str] | None = None,
        num_threads: int | None = None,
    ) -> Gradients:
        r"""Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``.

        In the notation of `relpos.attention`, with z the factor of dropout (1 without)
        and l the table row of the pair (i, j),

        .. math::

            dP_{ij} &= z_{ij} \, dout_i (v_j + W_l) \\
            dS_{ij} &= p_{ij} (dP_{ij} - dout_i \, out_i + dlse_i) \\
            dq_i &= scale \sum_j dS_{ij} (k_j + A_l), \quad
            dk_j = scale \sum_i dS_{ij} (q_i + u + C_l), \quad
            dv_j = \sum_i z_{ij} p_{ij} \, dout_i \\
            dA_l &= scale \sum dS_{ij} (q_i + v), \quad
            dC_l = scale \sum dS_{ij} k_j, \quad
            dW_l = \sum z_{ij} p_{ij} \, dout_i \\
            du &= scale \sum dS_{ij} k_j, \quad dv = scale \sum dS_{ij} A_l, \quad
            db_l = \sum dS_{ij}, \quad dmask_{ij} = dS_{ij} \\
            dg_t &= \sum_{j < t \le i + query\_offset} dS_{ij}, \quad
            dsink = \sum_i e^{sink - lse_i} (dlse_i - dout_i \, out_i)

        with dS times the slope of `softcap` in the gradients of q, k, A, C, u and v,
        where a table row sums over all pairs that use it, and g is `log_decay`. A
        position query e that was given gets :math:`de_i = \sum_j dS_{ij} A_l`, which
        :math:`dq_i` then lacks, and :math:`dA_l = \sum dS_{ij} (e_i + v)`,
        :math:`dv = \sum dS_{ij} A_l`. FIRE's
        parameters get what `fire_bias_backward` makes of dS. The scores are computed
        again tile by tile; only the gradient of a mask takes O(Lq Lk) memory. A query
        that sees no key adds nothing to any gradient but that of its sink; nor does one
        whose logits are nan, as a padded token's may be, where its `grad_out` and
        `grad_lse` are zero.

        Parameters
        ----------
        grad_out : array_like, (..., H, Lq, Dv), or None
            Gradient with respect to `out`, of its shape and of any floating dtype; it
            is rounded to the dtype of the computation. None: zeros.
        grad_lse : array_like, (..., H, Lq), optional
            Gradient with respect to `lse`.
        wrt : iterable of str, optional
            Names of the inputs to differentiate; what it leaves out is not computed.
            Default: every floating input given except `attn_mask`, whose gradient has
            an entry per pair.
        num_threads : int, optional
            Default `get_num_threads()`. The gradients do not depend on it, bit for bit.

        Returns
        -------
        AttentionGradients or FireAttentionGradients
            Named tuple ``(query, key, value, attn_mask, rel_key, rel_query, rel_value,
            rel_bias, pos_bias_u, pos_bias_v, position_query, sinks, log_decay)``, which
            that of `fire_attention` goes on with ``(w1, b1, w2, b2, c, threshold)``:
            each of its input's shape and dtype (summed over the axes on which the input
            was broadcast), or None.

        Raises
        ------
        TypeError
            `grad_out` or `grad_lse` is not floating, `wrt` holds something else than
            names, or `num_threads` is no integer.
        ValueError
            A shape does not fit, `grad_out` and `grad_lse` are both None, `wrt` names
            what the call did not have or cannot be differentiated, or an input has been
            resized since the call.
        MemoryError
            Out of memory.

        See Also
        --------
        AttentionGradients, FireAttentionGradients : What it returns.

        References
        ----------
        .. [1] Dao, Fu, Ermon, Rudra, Ré, "FlashAttention: Fast and Memory-Efficient
           Exact Attention with IO-Awareness", 2022, arXiv:2205.14135, appendix B.

        Examples
        --------
        The gradient of a sum of outputs by the values is what each key's weights add
        up to:

        >>> import numpy as np
        >>> import relpos
        >>> x = np.zeros((1, 2, 4))
        >>> result = relpos.attention(x, x, x, is_causal=True, return_context=True)
        >>> gradients = result.context.backward(np.ones_like(result.out), wrt=["value"])
        >>> gradients.value
        array([[[1.5, 1.5, 1.5, 1.5],
                [0.5, 0.5, 0.5, 0.5]]])
        >>> gradients.key is None
        True
        """
        self._check_layouts()
        gradients: Gradients = differentiate(
            self._problem, self._saved, grad_out, grad_lse, wrt, num_threads
        )
        return gradients

    def _arrays(self) -> list[tuple[str, Array]]:
        """Every array that a caller may hold as well."""
        return [*self._problem.inputs.items(), ("out", self._saved.out)]

    def _check_layouts(self) -> None:
        """Raise where memory that the kernel would read is no longer there."""
        for name, array in self._arrays():
            before = self._layouts[name]
            if _layout(array) != before:
                raise ValueError(
                    f"{name}: resized or reshaped since the call of attention that "
                    f"made this context (shape {before[0]} then, {array.shape} now); "
                    "expected an array left as it was: pass a copy, or call again"
                )


def _layout(array: Array) -> tuple[Any, ...]:
    """Tell where an array and the memory it is a view of lie."""
    return array.shape, array.strides, array.dtype, memory_of(array)
