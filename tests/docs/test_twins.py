"""Docstrings of functions on tensors and dask arrays: in the source, and completed."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from docstrings import SECTIONS, entries

import relpos
from relpos._twins import sections, twin

ROOT = Path(relpos.__file__).parent
#: Packages whose source describes parameters and results, as editors read it.
PACKAGES = ("torch", "torch/nn")
#: Two forms of a call, described by name.
EXCEPT = ("torch/nn.RelPartialLearnableMultiHeadAttn.forward",)
ARGUMENTS = ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg")


def public(package):
    """The definitions of a package's public names, as editors read them."""
    for node in ast.parse((ROOT / package / "__init__.py").read_text()).body:
        if not isinstance(node, ast.ImportFrom) or node.names[0].name != "*":
            continue
        path = ROOT.parent.joinpath(*node.module.split(".")).with_suffix(".py")
        body = ast.parse(path.read_text()).body
        found = {n.name: n for n in body if named(n)}
        lists = [n.value for n in body if ast.unparse(n).startswith("__all__")]
        for name in [name for each in lists for name in ast.literal_eval(each)]:
            yield name, found[name]


def named(node):
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def functions(package):
    """Public functions, constructors and methods: a name, the arguments, the text."""
    for name, node in public(package):
        if isinstance(node, ast.FunctionDef):
            yield f"{package}.{name}", node, ast.get_docstring(node)
            continue
        for method in node.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            if method.name == "__init__":
                yield f"{package}.{name}", method, ast.get_docstring(node)
            elif not method.name.startswith("_") and ast.get_docstring(method):
                text = ast.get_docstring(method)
                yield f"{package}.{name}.{method.name}", method, text


CASES = [c for package in PACKAGES for c in functions(package) if c[0] not in EXCEPT]
every_function = pytest.mark.parametrize(
    ("name", "node", "text"), [pytest.param(*case, id=case[0]) for case in CASES]
)


def test_all_packages_are_read():
    assert {name.rpartition(".")[0] for name, *_ in CASES} >= {*PACKAGES}
    assert len(CASES) > 40


@every_function
def test_the_source_describes_all_parameters(name, node, text):
    found = []
    for kind in ARGUMENTS:
        arguments = getattr(node.args, kind)
        if isinstance(arguments, list):
            found += arguments
        elif arguments is not None:  # *args or **keywords
            found.append(arguments)
    wanted = [argument.arg for argument in found if argument.arg != "self"]
    described = entries(sections(text).get("Parameters", ""))
    assert sorted(described) == sorted(wanted)


@every_function
def test_the_source_describes_what_comes_back(name, node, text):
    nothing = node.name == "__init__" or (
        isinstance(node.returns, ast.Constant) and node.returns.value is None
    )
    assert ("Returns" in sections(text)) != nothing


# ---- what `twin` makes of it ---------------------------------------------------------


def original():
    """Return a number.

    .. math:: y = 1

    Parameters
    ----------
    x : array_like, (n,)
        Numbers.
    y, z : array_like
        Others.

    Returns
    -------
    ndarray
        In the words of the original.

    Raises
    ------
    MemoryError
        Never.

    See Also
    --------
    other : Not for the twin.

    Notes
    -----
    Of the original.

    References
    ----------
    .. [1] Somebody.

    Examples
    --------
    >>> 0
    0
    """


def test_a_twin_has_the_rest_from_the_function_that_it_repeats():
    @twin(original)
    def function():
        """Return a tensor.

        Returns
        -------
        Tensor
            In its own words.

        Examples
        --------
        >>> 1
        1
        """

    found, whole = sections(function.__doc__), sections(original.__doc__)
    assert found == {
        "": "Return a tensor.\n\n.. math:: y = 1",
        "Parameters": whole["Parameters"],
        "Returns": "Tensor\n    In its own words.",
        "Raises": whole["Raises"],
        "Notes": whole["Notes"],
        "References": whole["References"],
        "Examples": ">>> 1\n1",
    }
    assert [*found][1:] == [title for title in SECTIONS if title in found]


def test_what_a_twin_says_itself_stands():
    @twin(original)
    def function():
        """Return a tensor.

        .. math:: y = 2

        Raises
        ------
        ValueError
            Of the twin.

        Notes
        -----
        Of the twin.
        """

    found, whole = sections(function.__doc__), sections(original.__doc__)
    assert found[""] == "Return a tensor.\n\n.. math:: y = 2"
    assert found["Raises"] == f"{whole['Raises']}\nValueError\n    Of the twin."
    assert found["Notes"] == "Of the twin."
    assert "Examples" not in found


def test_words_and_single_parameters_of_the_original_are_replaced():
    @twin(original, {"array_like": "dask array or array_like", "ndarray": "dask array"})
    def function(x, y, z):
        """Return a dask array.

        Parameters
        ----------
        y, z : int
            Of the twin.
        """

    found = sections(function.__doc__)
    assert found["Parameters"].splitlines() == [
        "x : dask array or array_like, (n,)",
        "    Numbers.",
        "y, z : int",
        "    Of the twin.",
    ]
    assert found["Returns"].startswith("dask array\n")


def test_parameters_that_are_as_in_the_original_are_described_as_there():
    @twin(original)
    def function(z, w, x):
        """Return a number.

        Parameters
        ----------
        w : int
            Of the twin.
        x : as in `original`
            In short.
        z : as in `another`
            In its own words.
        """

    assert sections(function.__doc__)["Parameters"].splitlines() == [
        "z : as in `another`",
        "    In its own words.",
        "w : int",
        "    Of the twin.",
        "x : array_like, (n,)",
        "    Numbers.",
    ]


@pytest.mark.parametrize(
    ("package", "needs"),
    [
        pytest.param("torch", "torch", marks=pytest.mark.torch),
        pytest.param("torch/nn", "torch", marks=pytest.mark.torch),
        ("sharded", "dask"),
    ],
)
def test_help_shows_what_the_source_says(package, needs):
    pytest.importorskip(needs)
    module = importlib.import_module(f"relpos.{package}".replace("/", "."))
    for name, node in public(package):
        shown = sections(inspect.getdoc(getattr(module, name)))
        for title, body in sections(ast.get_docstring(node)).items():
            if title == "":
                assert shown[title].startswith(body)
            elif title == "Parameters":
                assert {*entries(body)} <= {*entries(shown[title])}
                own = [
                    x.strip() for x in re.split(r"^(?=\S)", body, flags=re.MULTILINE)
                ]
                assert all(x in shown[title] or " : as in `" in x for x in own)
            else:
                assert body in shown[title]


def test_all_twins_are_of_the_function_of_their_name():
    for package in (*PACKAGES, "sharded"):
        home = "relpos.nn" if package == "torch/nn" else "relpos"
        for name, node in public(package):
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.startswith("twin("):
                    words = ", LAZY" if package == "sharded" else ", TENSORS"
                    words = "" if isinstance(node, ast.ClassDef) else words
                    assert decorator == f"twin({home}.{name}{words})"
