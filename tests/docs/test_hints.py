"""Calls that do not fit a signature are answered with the argument that was meant."""

from __future__ import annotations

import inspect
import pickle
import sys

import numpy as np
import pytest

import relpos
from relpos import nn
from relpos._checks import hinted
from relpos._hints import KEYWORDS
from relpos._schemes import SCHEMES

X = np.ones((2, 4, 3))
PAIRS = [(there, name) for there, names in KEYWORDS.items() for name in names.split()]


def rooms():
    """Return the packages that have functions and layers, as far as they load."""
    found = [relpos, relpos.reference, relpos.recipes, relpos.nn, relpos.plot]
    optional = [name for name in ("torch", "sharded") if name in dir(relpos)]
    found += [getattr(relpos, name) for name in optional]
    return [*found, *(room.nn for room in found if room.__name__ == "relpos.torch")]


def public(kind):
    """Return the public functions or classes of all packages, by their full names."""
    found = {}
    for room in rooms():
        for name in room.__all__:
            value = getattr(room, name)
            if kind(value):
                found[f"{room.__name__}.{name}"] = value
    return found


FUNCTIONS = public(inspect.isfunction)
LAYERS = {
    name: layer
    for name, layer in public(inspect.isclass).items()
    if ".nn." in name and layer.__init__ is not object.__init__
}


def error_text(function, *args, **keywords):
    """Return the text of the TypeError of a call."""
    with pytest.raises(TypeError) as caught:
        function(*args, **keywords)
    return str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "meant"),
    [
        ({"causal": True}, "is_causal"),
        ({"mask": None}, "attn_mask"),
        ({"attn_bias": None}, "attn_mask"),
        ({"dropout": 0.1}, "dropout_p"),
        ({"bias": None}, "attn_mask or rel_bias"),
        ({"pos": None}, "rel_key"),
        ({"softmax_scale": 1.0}, "scale"),
        ({"window_size": (1, 1)}, "window"),
        ({"need_weights": True}, "return_weights"),
        ({"isCausal": True}, "is_causal"),
        ({"dropuot_p": 0.1}, "dropout_p"),
        ({"rel_kye": None}, "rel_key"),
    ],
)
def test_what_attention_says(keywords, meant):
    (name,) = keywords
    expected = f"{name}: got an unexpected keyword argument {name!r}; did you mean "
    assert error_text(relpos.attention, X, X, X, **keywords) == f"{expected}{meant}?"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_has_a_parameter_is_tried_with_its_other_names(name):
    function = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        pytest.skip("takes any keyword")
    for there, other in PAIRS:
        if there in parameters and other not in parameters:
            text = error_text(function, **{other: None})
            assert text.startswith(f"{other}: got an unexpected keyword argument")
            meant = text.rpartition("did you mean ")[2].removesuffix("?").split(" or ")
            assert there in meant
    assert error_text(function, frobnicate=1).startswith(
        "frobnicate: got an unexpected"
    )


@pytest.mark.parametrize("name", LAYERS)
def test_every_constructor_and_call_says_the_argument(name):
    layer = LAYERS[name]
    methods = [layer, *(vars(layer).get(at) for at in ("__call__", "forward"))]
    for method in filter(None, methods):
        parameters = inspect.signature(method).parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        if not kinds & {inspect.Parameter.VAR_KEYWORD}:
            text = error_text(method, frobnicate=1)
            assert text.startswith("frobnicate: got an unexpected keyword argument")


def test_a_call_may_mean_an_argument_of_the_constructor():
    layer = nn.MultiheadAttention(4, 2)
    text = error_text(layer, np.ones((1, 2, 4)), causal=True)
    assert text.endswith("; did you mean is_causal of the constructor?")


def test_an_unknown_name_that_is_like_no_other_gets_the_list():
    text = error_text(relpos.skew, X, frobnicate=1)
    assert text.endswith("argument 'frobnicate'; expected one of x, is_causal")
    text = error_text(relpos.get_num_threads, a=1)
    assert text.endswith("expected none, as get_num_threads has none")


def test_missing_and_surplus_arguments():
    expected = "attention() needs an argument 'value'"
    assert error_text(relpos.attention, X, X) == expected
    expected = "Linear() needs an argument 'out_features'"
    assert error_text(nn.Linear, 1) == expected
    assert error_text(nn.Linear(1, 2)) == "Linear.__call__() needs an argument 'x'"
    expected = "query: got one argument by position, one by name; expected one"
    assert error_text(relpos.attention, X, X, X, query=X) == expected
    text = error_text(relpos.attention, X, X, X, None, 0.0, False, 1.0)
    assert text.startswith("attention() takes at most 6 positional arguments, but got ")
    assert "7 (scale, enable_gqa" in text and text.endswith("out go by name)")
    text = error_text(relpos.kerple_bias, 1, 2, 3, "log")
    assert text.endswith(
        "at most 3 positional arguments, but got 4 (kind goes by name)"
    )
    text = error_text(relpos.get_num_threads, 1)
    assert text == "get_num_threads() takes no positional argument, but got 1"
    text = error_text(relpos.KVCache, 1, 2)
    assert text == "KVCache() takes at most 1 positional argument, but got 2"


#: A scheme that is named where attention takes its arguments, and what to do for it.
SCHEMES_AS_KEYWORDS = {
    "alibi": "pass rel_bias=relpos.alibi_bias(H, L)",
    "ALiBi": "pass rel_bias=relpos.alibi_bias(H, L)",
    "kerple": "pass rel_bias=relpos.kerple_bias(r1, r2, L)",
    "t5": "pass **relpos.recipes.t5(weight)",
    "deberta": "pass **relpos.recipes.deberta(pos_key, pos_query)",
    "shaw": "call relpos.shaw_attention",
    "music": "call relpos.relative_global_attention",
    "rope": "pass query and key through relpos.apply_rotary",
    "sinusoidal": "add relpos.sinusoidal(positions, dim) to the tokens",
    "rel_bias": "pass rel_bias",
    "nope": "leave it out",
}


@pytest.mark.parametrize("scheme", SCHEMES_AS_KEYWORDS)
def test_a_scheme_as_a_keyword_leads_to_its_function(scheme):
    hint = f"for {scheme!r}, {SCHEMES_AS_KEYWORDS[scheme]}"
    for name in ("scheme", "position", "position_embedding_type"):
        text = error_text(relpos.attention, X, X, X, **{name: scheme})
        assert text == f"{name}: got an unexpected keyword argument {name!r}; {hint}"


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_every_scheme_as_a_keyword_leads_somewhere(scheme):
    for name in (*scheme.names, *scheme.variants):
        text = error_text(relpos.attention, X, X, X, scheme=name)
        assert f"; for {name!r}, " in text
    text = error_text(relpos.attention, X, X, X, scheme="waltz")
    assert "; expected one of query, key," in text
    text = error_text(relpos.get_num_threads, scheme="alibi")
    assert text.endswith("expected none, as get_num_threads has none")


@pytest.mark.torch
def test_a_scheme_as_a_keyword_leads_to_its_function_of_tensors():
    pytest.importorskip("torch")
    text = error_text(relpos.torch.attention, X, X, X, scheme="alibi")
    assert text.endswith("for 'alibi', pass rel_bias=relpos.torch.alibi_bias(H, L)")
    text = error_text(relpos.torch.attention, X, X, X, scheme="t5")
    assert text.endswith("for 't5', pass **relpos.recipes.t5(weight)")
    text = error_text(relpos.torch.attention, X, X, X, scheme="music")
    assert text.endswith("call relpos.torch.relative_global_attention")


TABLE = np.ones((7, 3))
#: Good calls by position alone, of functions whose calls C reads.
BY_POSITION = {
    relpos.attention: (X, X, X, None, 0.0, False),
    relpos.shaw_attention: (X, X, X, TABLE, None),
    relpos.relative_global_attention: (X, X, X, TABLE),
    relpos.transformer_xl_attention: (X, X, X, TABLE, None, None),
}


@pytest.mark.parametrize("function", BY_POSITION)
def test_an_argument_that_is_given_twice_is_refused_whatever_it_is(function):
    """As None, too, which leaves an argument out."""
    good = BY_POSITION[function]
    names = [*inspect.signature(function).parameters][: len(good)]
    assert function(*good).shape == X.shape
    for at, name in enumerate(names):
        for by_position in (good[at], None):
            args = (*good[:at], by_position, *good[at + 1 :])
            for count in range(at + 1, len(good) + 1):
                for value in (good[at], None, X):
                    text = error_text(function, *args[:count], **{name: value})
                    expected = f"{name}: got one argument by position, one by name"
                    assert text == f"{expected}; expected one"


def test_other_errors_stay_what_they_are():
    def refuses(x):
        raise TypeError("x: got it; expected none")

    assert error_text(hinted(refuses), 1) == "x: got it; expected none"
    with pytest.raises(TypeError) as caught:
        relpos.attention(X, X, X, causal=True)
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match=r"takes 0 positional|argument") as caught:
        relpos.audit_encoding(lambda: 1, lengths=(4, 8), dim=2)
    assert "lambda" in str(caught.value)


def test_packages_list_their_public_names_alone():
    for room in rooms()[1:]:
        assert {*dir(room)} - {"nn"} == {*room.__all__}


def test_public_functions_are_functions_by_their_names():
    for name, function in FUNCTIONS.items():
        if function.__name__ == name.rpartition(".")[2]:
            assert pickle.loads(pickle.dumps(function)) is function
        assert function.__doc__ and inspect.getsource(function)


def test_a_dense_bias_goes_to_attn_mask():
    x = np.ones((4, 10, 8))
    for bias in (np.ones((4, 10, 10)), np.ones((1, 4, 10, 10))):
        with pytest.raises(ValueError, match=r"a dense bias, .*, goes to attn_mask"):
            relpos.attention(x, x, x, rel_bias=bias)
    with pytest.raises(ValueError, match=r"10 heads, but query has 4; .*R\)$"):
        relpos.attention(x, x, x, rel_bias=np.ones((10, 11)))


def test_pictures_name_the_extra_that_has_matplotlib(monkeypatch):
    loaded = [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]
    for name in {*loaded, "matplotlib"}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"install '\.\[plot\]'") as caught:
        relpos.plot.score_map(np.ones((2, 2)))
    assert caught.value.name == "matplotlib"
