"""The result of a recipe that computes keywords, and its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relpos._checks import Array, kind_of, quiet


class Recipe(dict[str, Any]):
    """Keywords of `attention` made from a model's parameters, and their gradients.

    It is a dict: pass it on as ``attention(key=k, value=v, **recipe)``. It refers to
    the parameters that it was made from. Changing their numbers makes later gradients
    wrong.

    See Also
    --------
    relpos.attention : Takes the keywords.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 6, 4))
    >>> recipe = recipes.gemma3n_audio(np.zeros(4), np.ones((8, 6)), q)
    >>> result = relpos.attention(key=k, value=v, **recipe, return_context=True)
    >>> gradients = result.context.backward(np.ones_like(result.out))
    >>> {name: x.shape for name, x in recipe.backward(gradients).items()}
    {'per_dim_scale': (4,), 'pos_proj': (8, 6), 'query': (2, 6, 4)}
    """

    def __init__(
        self,
        keywords: Mapping[str, Any],
        back: Callable[[Mapping[str, Any]], dict[str, Array]],
    ) -> None:
        super().__init__(keywords)
        self._back = back

    @quiet
    def backward(self, gradients: Any) -> dict[str, Array]:
        """Turn gradients of the keywords into those of the model's parameters.

        Parameters
        ----------
        gradients : AttentionGradients, or mapping of str to array_like
            What `relpos.AttentionContext.backward` returned, or at least the gradients
            of the arrays that the recipe made.

        Returns
        -------
        dict of str to ndarray
            By the names of the recipe's parameters, in their shapes and dtypes.

        Raises
        ------
        TypeError, ValueError
            If a gradient is missing, or of another kind or shape than its keyword.

        See Also
        --------
        relpos.AttentionContext.backward : Where the gradients come from.
        """
        if hasattr(gradients, "_asdict"):
            gradients = gradients._asdict()
        if not isinstance(gradients, Mapping):
            raise TypeError(
                f"gradients: got {kind_of(gradients)}; expected AttentionGradients or "
                "a mapping of names to arrays"
            )
        return self._back(gradients)
