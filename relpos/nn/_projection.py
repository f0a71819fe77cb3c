"""Base of the layers that attend: they read inputs, project them and join heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from relpos._checks import Array
from relpos.nn._inputs import as_input, join_heads, split_heads
from relpos.nn.module import Module


class AttentionLayer(Module):
    """Base of the layers that attend.

    A layer reads its inputs, projects them to heads, calls a function of relpos with
    these and the tables of its scheme, and joins the heads.
    """

    num_heads: int
    #: Layers that project query, key and value, and the one after the heads are joined.
    _names: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj", "out_proj")

    def _read(
        self, query: Any, key: Any, value: Any, width: int
    ) -> tuple[Array, Array, Array]:
        """Check the inputs: without `value` the key is it, without `key` the query."""
        if key is None and value is not None:
            raise ValueError("key: got None with a value; expected both, or neither")
        shape: tuple[int | str, ...] = ("batch", "Lq", width)
        queries = keys = as_input("query", query, self.dtype, shape)
        if key is not None:
            shape = (len(queries), "Lk", width)
            keys = as_input("key", key, self.dtype, shape)
        if value is None:
            return queries, keys, keys
        return queries, keys, as_input("value", value, self.dtype, keys.shape)

    def _project(self, inputs: Any) -> list[Array]:
        """Return query, key and value in heads."""
        layers = [getattr(self, name) for name in self._names[:3]]
        return [self._split(f(x)) for f, x in zip(layers, inputs, strict=True)]

    def _project_back(self, found: Any) -> list[Array]:
        """Return the gradients of the inputs, given those of attention."""
        layers = [getattr(self, name) for name in self._names[:3]]
        grads = found.query, found.key, found.value
        return [f.backward(self._join(x)) for f, x in zip(layers, grads, strict=True)]

    def _attend(
        self,
        function: Callable[..., Any],
        heads: Sequence[Array],
        dropout: float = 0.0,
        **keywords: Any,
    ) -> tuple[Array, Any]:
        """Return the output for query, key and value in heads, and the context."""
        keywords = {
            "dropout_p": dropout if self.training else 0.0,
            "rng": self._rng,
            **keywords,
        }
        result = function(*heads, **keywords, return_context=True)
        last = getattr(self, self._names[3])
        return last(self._join(result.out)), result.context

    def _attend_back(self, grad: Array, context: Any) -> Any:
        """Return the gradients of attention, given that of the output."""
        last = getattr(self, self._names[3])
        return context.backward(self._split(last.backward(grad)))

    def _split(self, x: Array) -> Array:
        return split_heads(x, self.num_heads)

    def _join(self, x: Array) -> Array:
        return join_heads(x)


class Part(NamedTuple):
    """Input, and its use: it becomes query, key or value number `first` to `last` - 1.

    The fewer parts, the larger the products.
    """

    x: Array
    first: int
    last: int
