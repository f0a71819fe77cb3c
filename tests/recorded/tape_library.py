"""Functions of relpos, and of the oracle, on the traced arrays of tape.py."""

from __future__ import annotations

from types import SimpleNamespace

import dense_oracle
import numpy as np
import oracle_gradients
from recorded import oracle_library
from tape import Traced, value

import relpos
from relpos import recipes

SIGNATURES = {
    "attention": ("query", "key", "value", "attn_mask"),
    "shaw_attention": ("query", "key", "value", "rel_key", "rel_value"),
    "relative_global_attention": ("query", "key", "value", "rel_key"),
    "transformer_xl_attention": (
        "query", "key", "value", "rel_key", "pos_bias_u", "pos_bias_v"
    ),
}  # fmt: skip


def traced_attention(name, run):
    """An attention function on traced arrays; out and lse are traced, weights are not.

    run: from plain arguments to a result and its reverse pass
    ``backward(grad_out, grad_lse, names)``, which gives a dict of gradients.
    """

    def call(*arguments, **keywords):
        keywords |= dict(zip(SIGNATURES[name], arguments, strict=False))
        names = [n for n, x in keywords.items() if isinstance(x, Traced)]
        result, backward = run(**{n: value(x) for n, x in keywords.items()})

        def reverse_pass(grad_out, grad_lse):
            gradients = backward(grad_out, grad_lse, names)
            return [gradients[n].astype(np.float64) for n in names]

        parents = [keywords[n] for n in names]
        return SimpleNamespace(
            out=Traced(result.out, parents, lambda grad: reverse_pass(grad, None)),
            lse=Traced(result.lse, parents, lambda grad: reverse_pass(None, grad)),
            weights=result.weights,
        )

    return call


def with_context(function):
    def run(**keywords):
        result = function(**keywords, return_context=True)

        def backward(grad_out, grad_lse, names):
            found = result.context.backward(grad_out, grad_lse=grad_lse, wrt=names)
            return found._asdict()

        return result, backward

    return run


def with_oracle(**keywords):
    del keywords["return_lse"], keywords["return_weights"]

    def backward(grad_out, grad_lse, names):
        incoming = {"grad_out": grad_out, "grad_lse": grad_lse}
        return oracle_gradients.gradients(**keywords, **incoming)

    return dense_oracle.attention(**keywords), backward


def traced_bias(function, backward):
    """A bias of traced parameters, the first arguments, and its adjoint."""

    def call(*arguments, **options):
        count = sum(isinstance(x, Traced) for x in arguments)
        parents, sizes = arguments[:count], arguments[count:]

        def reverse_pass(grad):
            gradients = backward(grad, *map(value, parents), **options)
            gradients = (
                gradients._asdict() if isinstance(gradients, tuple) else gradients
            )
            return [np.asarray(x, np.float64) for x in gradients.values()]

        result = function(*map(value, parents), *sizes, **options)
        return Traced(result, parents, reverse_pass)

    return call


def traced_recipe(function):
    """A recipe with `backward`: its arrays are traced to its parameters.

    Its first arguments are the parameters, in the order of the gradients. Each array is
    traced alone, as all gradients are linear in those of the arrays.
    """

    def call(*arguments, **options):
        recipe = function(*value(arguments), **options)
        parents = [x for x in arguments if isinstance(x, Traced)]
        if not parents:
            return recipe
        arrays = {n: x for n, x in recipe.items() if isinstance(x, np.ndarray)}
        floating = [name for name, x in arrays.items() if x.dtype.kind == "f"]

        def back_from(name):
            def reverse_pass(grad):
                zeros = {n: np.zeros(recipe[n].shape) for n in floating}
                gradients = recipe.backward(zeros | {name: grad}).values()
                pairs = zip(gradients, arguments, strict=False)
                return [np.float64(x) for x, a in pairs if isinstance(a, Traced)]

            return reverse_pass

        return recipe | {n: Traced(recipe[n], parents, back_from(n)) for n in floating}

    return call


def recipes_of(module):
    """Recipes on traced arrays; those without `backward` take them as they are."""
    found = {name: getattr(module, name) for name in module.__all__}
    for name, function in found.items():
        if getattr(function, "__annotations__", {}).get("return") == "Recipe":
            found[name] = traced_recipe(function)
    return SimpleNamespace(**found)


def linear_map(function, adjoint):
    """A linear function of its first argument whose adjoint relpos has."""

    def call(x, *arguments, **keywords):
        result = function(value(x), *arguments, **keywords)
        if not isinstance(x, Traced):
            return result

        def backward(grad):
            return [adjoint(grad, x.shape, *arguments, **keywords)]

        return Traced(result, [x], backward)

    return call


def rotary(source):
    """apply_rotary, with gradients of x and of frequencies."""

    def call(x, positions=None, **keywords):
        inputs = {"x": x, "inv_freq": keywords.get("inv_freq")}
        used = [name for name, array in inputs.items() if isinstance(array, Traced)]
        plain = {name: value(array) for name, array in keywords.items()}

        def backward(grad):
            gradients = source.apply_rotary_backward(grad, value(x), positions, **plain)
            return [getattr(gradients, name).astype(np.float64) for name in used]

        result = source.apply_rotary(value(x), positions, **plain)
        return Traced(result, [inputs[name] for name in used], backward)

    return call


def on_values(function):
    def call(*arguments, **keywords):
        return function(*value(arguments), **{n: value(x) for n, x in keywords.items()})

    return call


#: Linear functions of their first argument, and their adjoints.
LINEAR = {
    "rel_shift": lambda grad, shape: relpos.unskew(grad, is_causal=True),
    "skew": lambda grad, shape, is_causal: relpos.unskew(grad, is_causal=is_causal),
    "unskew": lambda grad, shape, is_causal: relpos.skew(grad, is_causal=is_causal),
    "learned": lambda grad, shape, positions: relpos.learned_backward(
        grad, positions, shape[-2]
    ),
}
CONSTANT = (
    "relative_positions",
    "grid_labels",
    "sinusoidal",
    "xpos_magnitude",
    "mrope_angles",
    "axial_angles",
    "rotary_from_config",
    "alibi_slopes",
    "alibi_bias",
    "t5_bucket",
    "deberta_bucket",
    "merge_attention",
    "shaw_scores",
    "skewed_scores",
    "transformer_xl_scores",
)


def library(source=relpos):
    """The functions of relpos or of the oracle on traced arrays."""
    if source is relpos:
        schemes = {
            name: traced_attention(name, with_context(getattr(relpos, name)))
            for name in SIGNATURES
        }
    else:
        attention = traced_attention("attention", with_oracle)
        schemes = {n: getattr(oracle_library(attention), n) for n in SIGNATURES}
    linear = {
        name: linear_map(getattr(source, name), adjoint)
        for name, adjoint in LINEAR.items()
    }
    constant = {name: on_values(getattr(source, name)) for name in CONSTANT}
    constant["apply_rotary"] = rotary(source)
    biases = {
        name: traced_bias(getattr(source, name), getattr(source, f"{name}_backward"))
        for name in ("fire_bias",)
    }
    return SimpleNamespace(
        **schemes, **linear, **constant, **biases, recipes=recipes_of(recipes)
    )
