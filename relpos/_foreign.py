"""Objects of other packages, known by name: no call of relpos loads their modules."""

from __future__ import annotations

from typing import Any

import numpy as np

#: DLPack's number of memory that NumPy can read.
_CPU = 1


def module_of(value: object, *modules: str) -> str | None:
    """Return the first of `modules` that has a class of `value`, also in its parts."""
    homes = [f"{base.__module__}." for base in type(value).__mro__]
    for module in modules:
        if any(home.startswith(f"{module}.") for home in homes):
            return module
    return None


#: Calls that pass an array of each package to relpos. NumPy's conversion would drop
#: labels, units or an index, compute a graph, or fail without an explanation.
_CALLS = {
    "xarray": (
        "pass array.values, or call xarray.apply_ufunc(relpos.attention, query, key, "
        "value, input_core_dims=[..], output_core_dims=[..])"
    ),
    "dask": (
        "pass array.compute(), or call relpos.sharded.attention, which is attention on "
        "dask arrays; relpos.ufuncs take dask arrays, too"
    ),
    "jax._src.core": (
        "inside jax.jit, grad or vmap call it through jax.pure_callback: docs/jax.md "
        "has the lines"
    ),
    "pandas": "pass x.to_numpy()",
    "polars": "pass x.to_numpy()",
    "cupy": "pass array.get()",
    "scipy.sparse": (
        "pass matrix.toarray(); graph_attention takes it as edges=matrix.tocsr()"
    ),
    "sparse": "pass array.todense()",
    "pint": "pass quantity.magnitude",
    "astropy.units": "pass quantity.value",
    "unyt": "pass quantity.value",
}


#: Subclasses of PyTorch's Tensor whose numbers are those in their memory.
PLAIN = "plain"
#: That of masks which know their meaning and leave their memory as it was.
CAUSAL_BIAS = "torch.nn.attention.bias.CausalBias"
#: PyTorch's subclasses of Tensor without a ``__torch_dispatch__``, which alone could
#: tell an operator what they are, and those that refuse every operator. Each is plain,
#: or is refused: then it has what is expected instead. A CausalBias is translated where
#: it is the mask of attention, and refused elsewhere.
TENSOR_KINDS = {
    "torch.nn.parameter.Parameter": PLAIN,
    "torch.nn.parameter.Buffer": PLAIN,
    "torch.distributed.fsdp._flat_param.FlatParameter": PLAIN,
    CAUSAL_BIAS: (
        "a tensor of numbers or flags (what causal_upper_left and causal_lower_right "
        "return is taken as attn_mask of the functions and layers of relpos.torch)"
    ),
    "torch.nn.utils._expanded_weights.expanded_weights_impl.ExpandedWeight": (
        "a plain tensor (torch.func.vmap of torch.func.grad gives the gradients of "
        "each sample)"
    ),
    "torch.nn.parameter.UninitializedParameter": "one with a shape (materialize it)",
    "torch.nn.parameter.UninitializedBuffer": "one with a shape (materialize it)",
    "torch.utils.dlpack.ReadOnlyTensorWrapper": "the tensor that it wraps",
    "torch.masked.maskedtensor.core.MaskedTensor": (
        "a plain tensor (pass tensor.get_data(), and hide keys by attn_mask or "
        "key_lengths)"
    ),
}


def names_of(kind: type) -> list[str]:
    """Return the full names of a class and its bases."""
    return [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]


def expected_instead(kind: type) -> str | None:
    """Say what to pass instead of tensors of a class; None where they are read."""
    for name in names_of(kind):
        expected = TENSOR_KINDS.get(name, PLAIN)
        if expected != PLAIN:
            return expected
    return None


_HOMES = {package.partition(".")[0] for package in _CALLS}


def refusal(value: object) -> str | None:
    """Say which call passes a value to relpos; None where `np.asarray` is right."""
    homes = (base.__module__.partition(".")[0] for base in type(value).__mro__)
    if _HOMES.isdisjoint(homes):  # in a sixth of the time
        return None
    package = module_of(value, *_CALLS)
    if package is None:
        return None
    home, kind = package.split(".")[0], type(value).__name__
    article = "an" if home in ("astropy", "xarray") else "a"
    return f"got {article} {home} {kind}; expected a NumPy array ({_CALLS[package]})"


def view_on_cpu(name: str, value: Any) -> Any:
    """View a value with DLPack as an array, without a copy; return others as is."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return value
    try:
        device, _ = value.__dlpack_device__()
    except (BufferError, ValueError):  # it lies on several devices
        return value
    if device != _CPU:
        raise TypeError(
            f"{name}: got a {type(value).__name__} on device {device!r}; expected one "
            "on the CPU"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:  # bfloat16, or numbers with a gradient
        array = np.asarray(value)  # by another way, if it has one
        if array.dtype != object:
            return array
        raise TypeError(
            f"{name}: got a {type(value).__name__} that DLPack does not export to "
            f"NumPy ({str(error).rstrip('.')}); expected float16, float32 or float64, "
            "integers or booleans, without a gradient"
        ) from None
