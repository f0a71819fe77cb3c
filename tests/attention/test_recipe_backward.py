"""`Recipe.backward`: what it takes and refuses, copies, and the former functions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from bad_recipes import GOOD
from problems import DTYPES, normal
from tolerances import assert_bitwise

import relpos
from relpos import recipes

NAMES = ["gemma3n_audio", "gemma4_audio"]
every_recipe = pytest.mark.parametrize("name", NAMES)


def drawn(name, dtype="float64"):
    rng = np.random.default_rng(5)
    return {n: normal(rng, *x.shape).astype(dtype) for n, x in GOOD[name].items()}


def gradients_of(recipe):
    """Return gradients of an attention that takes the recipe, of all inputs."""
    rng = np.random.default_rng(6)
    query = recipe["query"]
    key, value = normal(rng, 2, *query.shape).astype(query.dtype)
    result = relpos.attention(key=key, value=value, **recipe, return_context=True)
    return result.context.backward(normal(rng, *query.shape).astype(query.dtype))


@every_recipe
@pytest.mark.parametrize("changed", ["query", "rel_key"])
def test_gradients_of_another_shape_or_none_are_refused(name, changed):
    recipe = getattr(recipes, name)(**GOOD[name])
    good = {"query": recipe["query"], "rel_key": recipe["rel_key"]}
    wanted = rf"^gradients\.{changed}: got .*expected \({good[changed].shape[0]}, "
    with pytest.raises(ValueError, match=wanted):
        recipe.backward(good | {changed: good[changed][..., 1:]})
    for missing in ({changed: None}, {}):
        rest = {n: x for n, x in good.items() if n != changed}
        with pytest.raises(TypeError, match=rf"^gradients\.{changed}: got NoneType"):
            recipe.backward(rest | missing)


@every_recipe
@pytest.mark.parametrize("wrong", [None, 1.0, "x", [1.0], np.ones(3), object()])
def test_what_has_no_names_is_refused(name, wrong):
    recipe = getattr(recipes, name)(**GOOD[name])
    with pytest.raises(TypeError, match=r"^gradients: got .*; expected Attention"):
        recipe.backward(wrong)


@every_recipe
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, "pickled"])
def test_a_copy_has_the_same_way_back(name, copied):
    recipe = getattr(recipes, name)(**drawn(name))
    if copied == "pickled":
        again = pickle.loads(pickle.dumps(recipe))
    else:
        again = copied(recipe)
    assert type(again) is recipes.Recipe and [*again] == [*recipe]
    want = recipe.backward(gradients_of(recipe))
    for parameter, gradient in again.backward(gradients_of(again)).items():
        assert_bitwise(gradient, want[parameter])


# ---- the functions that `Recipe.backward` has replaced -------------------------------


@every_recipe
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_former_function_returns_the_same_gradients_and_shows_the_new_call(
    name, dtype
):
    given, settings = drawn(name, dtype), {"context_left": 4, "context_right": 2}
    recipe = getattr(recipes, name)(**given, **settings)
    made = gradients_of(recipe)
    new_call = rf"recipes\.{name}\({', '.join(given)}\) and recipe\.backward\("
    with pytest.warns(DeprecationWarning, match=new_call) as warned:
        found = getattr(recipes, f"{name}_backward")(
            made.query, made.rel_key, *given.values(), **settings
        )
    assert [warning.filename for warning in warned] == [__file__]
    assert found._fields == tuple(given)
    for parameter, gradient in recipe.backward(made).items():
        assert gradient.dtype == dtype
        assert_bitwise(getattr(found, parameter), gradient)


@every_recipe
def test_the_former_function_takes_its_arguments_by_name(name):
    recipe = getattr(recipes, name)(**GOOD[name])
    grads = {f"grad_{n}": np.ones_like(recipe[n]) for n in ("query", "rel_key")}
    with pytest.warns(DeprecationWarning):
        found = getattr(recipes, f"{name}_backward")(**grads, **GOOD[name])
    assert [x.shape for x in found] == [x.shape for x in GOOD[name].values()]


def test_former_functions_are_imported_by_name_and_listed_nowhere():
    from relpos.recipes import gemma3n_audio_backward, gemma4_audio_backward

    for former in (gemma3n_audio_backward, gemma4_audio_backward):
        assert former.__name__ not in {*recipes.__all__, *dir(recipes)}
    assert not hasattr(recipes, "gemma5_audio_backward")
    with pytest.raises(AttributeError, match=r"'relpos\.recipes' has no .*'t6'"):
        recipes.t6  # noqa: B018
