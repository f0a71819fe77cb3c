"""`Recipe.backward` of every recipe that has it, and the functions that it replaced."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from backward_checks import difference_of
from good_calls import GOOD
from problems import normal
from tolerances import assert_bitwise, normwise

from relpos import recipes

pytestmark = pytest.mark.usefixtures("strict_floats")

#: Arguments that are not as in GOOD: two functions make a recipe if they are asked to.
GIVEN = {
    "pope": {"bias": np.ones((2, 4)), "inv_freq": np.ones(4), "argument": "key"},
    "xlnet_segments": {"argument": "attn_mask"},
}
#: Further cases: the recipe, and what is not as in GIVEN.
MORE = [
    ("beit", {"window": (3, 2), "table_window": (2, 3)}),
    ("beit", {"window": (1, 4), "table_window": (2, 3)}),
    ("enformer", {"length": 1}),
    ("forgetting_transformer", {"window_size": 2}),
    ("gemma3n_audio", {"context_right": 2}),
    ("layoutlmv3", {"rel_pos_x_bias": None, "rel_pos_y_bias": None}),
    ("parakeet", {"length": 1}),
    ("pope", {"bias": np.ones(4), "inv_freq": None, "offset": 3.5, "base": 50.0}),
    ("pope", {"bias": None, "positions": np.arange(-4, 6).reshape(2, 5)}),
    ("rope_vit", {"coordinates": np.arange(24.0).reshape(3, 4, 2)}),
    ("swin_v2", {"pretrained_window": (4, 5)}),
    ("swin_v2", {"window": (1, 3)}),
]


def good(name, changes=None, dtype="float64", seed=67):
    """Arguments of a recipe, the numbers of its floating arrays random."""
    rng = np.random.default_rng(seed)
    return {
        n: normal(rng, *x.shape).astype(dtype)
        if getattr(x, "dtype", None) == np.float64 and n != "coordinates"
        else x
        for n, x in (
            GOOD[f"recipes.{name}"] | GIVEN.get(name, {}) | (changes or {})
        ).items()
    }


def made_of(recipe):
    """The floating arrays of a recipe."""
    arrays = {n: x for n, x in recipe.items() if isinstance(x, np.ndarray)}
    return {n: x for n, x in arrays.items() if x.dtype.kind == "f"}


NAMES = [
    name
    for name in recipes.__all__
    if f"recipes.{name}" in GOOD
    and isinstance(getattr(recipes, name)(**good(name)), recipes.Recipe)
]
every_recipe = pytest.mark.parametrize("name", NAMES)


def random_gradients(recipe, dtype=None):
    rng = np.random.default_rng(6)
    return {
        n: normal(rng, *x.shape).astype(dtype or x.dtype)
        for n, x in made_of(recipe).items()
    }


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in NAMES), *MORE])
def test_gradients_equal_differences(name, changes):
    """Differences of any sum of the arrays, along any direction of the parameters."""
    forward, arguments = getattr(recipes, name), good(name, changes)
    recipe = forward(**arguments)
    grads = random_gradients(recipe)
    gradients = recipe.backward(grads)
    assert {*gradients} == {
        n
        for n, x in arguments.items()
        if getattr(x, "dtype", None) == np.float64 and n != "coordinates"
    }
    assert [x.shape for x in gradients.values()] == [
        arguments[n].shape for n in gradients
    ]

    def total(parameters):
        keywords = forward(**arguments | dict(zip(gradients, parameters, strict=True)))
        return sum(float((grad * keywords[n]).sum()) for n, grad in grads.items())

    rng = np.random.default_rng(7)
    for _ in range(5):
        steps = [normal(rng, *x.shape) for x in gradients.values()]
        want = difference_of(total, [arguments[n] for n in gradients], steps)
        terms = [g * s for g, s in zip(gradients.values(), steps, strict=True)]
        size = sum(float(np.abs(term).sum()) for term in terms)
        assert abs(sum(float(term.sum()) for term in terms) - want) <= 1e-9 * size


@every_recipe
@pytest.mark.parametrize(("dtype", "limit"), [("float16", 5e-4), ("float32", 2e-6)])
def test_gradients_have_the_dtype_of_their_parameter(name, dtype, limit):
    given = good(name, dtype=dtype)
    recipe = getattr(recipes, name)(**given)
    wide = {
        n: x.astype(float) if getattr(x, "dtype", None) == dtype else x
        for n, x in given.items()
    }
    grads = random_gradients(recipe, dtype)
    want = getattr(recipes, name)(**wide).backward(grads)
    for n, got in recipe.backward(grads).items():
        assert got.dtype == dtype
        assert normwise(got.astype(float), want[n], 1e-3) <= limit


@every_recipe
def test_gradients_of_another_shape_or_none_are_refused(name):
    recipe = getattr(recipes, name)(**good(name))
    made = made_of(recipe)
    for changed, array in made.items():
        shape = ", ".join(map(str, array.shape))
        wanted = rf"^gradients\.{changed}: got .*expected \({shape}"
        with pytest.raises(ValueError, match=wanted):
            recipe.backward(made | {changed: array[..., 1:]})
        rest = {n: x for n, x in made.items() if n != changed}
        for missing in ({changed: None}, {}):
            with pytest.raises(
                TypeError, match=rf"^gradients\.{changed}: got NoneType"
            ):
                recipe.backward(rest | missing)
        with pytest.raises(TypeError, match=rf"^gradients\.{changed}: got .*int64"):
            recipe.backward(rest | {changed: np.ones(array.shape, int)})


@pytest.mark.parametrize("wrong", [None, 1.0, "x", [1.0], np.ones(3), object()])
def test_gradients_without_names_are_refused(wrong):
    recipe = recipes.gemma3n_audio(**good("gemma3n_audio"))
    with pytest.raises(TypeError, match=r"^gradients: got .*; expected Attention"):
        recipe.backward(wrong)


def test_arguments_that_were_added_or_removed_change_no_gradient():
    recipe = recipes.gemma3n_audio(**good("gemma3n_audio"))
    grads = random_gradients(recipe)
    want = recipe.backward(grads)
    recipe["sinks"] = np.zeros(2)
    del recipe["rel_key"]
    for parameter, gradient in recipe.backward(grads).items():
        assert_bitwise(gradient, want[parameter])


@every_recipe
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, "pickled"])
def test_a_copy_has_the_same_gradients(name, copied):
    recipe = getattr(recipes, name)(**good(name))
    if copied == "pickled":
        again = pickle.loads(pickle.dumps(recipe))
    else:
        again = copied(recipe)
    assert type(again) is recipes.Recipe and [*again] == [*recipe]
    grads = random_gradients(recipe)
    want = recipe.backward(grads)
    for parameter, gradient in again.backward(grads).items():
        assert_bitwise(gradient, want[parameter])


@pytest.mark.parametrize("name", GIVEN)
def test_without_an_argument_the_result_is_the_array(name):
    given = good(name)
    recipe = getattr(recipes, name)(**given)
    array = getattr(recipes, name)(**given | {"argument": None})
    assert type(array) is np.ndarray
    assert_bitwise(array, recipe[given["argument"]])
