"""The plugin that chooses the cases of `pytest -q`, on small files of tests."""

import re

import pytest
import selection

from relpos import _core

pytest_plugins = ["pytester"]
BEST = list(_core.by_isa)[-1]
FILE = f"""
import pytest

TABLES = {list(_core.by_isa)}


@pytest.fixture(params=TABLES)
def isa(request):
    return request.param


@pytest.fixture(params=["p", "q"])
def fixture(request):
    return request.param


def test_one():
    '''No parameters.'''


def test_table(isa):
    '''The best table alone.'''


@pytest.mark.parametrize("isa", ["another"])
def test_other_table(isa):
    '''A table that is not the best is better than none.'''


@pytest.mark.parametrize("a", [1, 1, 2, 3, 4, 5])
def test_list(a):
    '''A list runs whole.'''


@pytest.mark.parametrize("a, b", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_list_of_pairs(isa, a, b):
    '''A list of several names runs whole, on the best table.'''


@pytest.mark.few(3)
@pytest.mark.parametrize("a", range(8))
def test_few(isa, a):
    '''Some of a list whose cases take long.'''


@pytest.mark.product
@pytest.mark.parametrize("a, b", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_gaps(isa, a, b):
    '''A product that a loop has written.'''


@pytest.mark.parametrize(argnames=["a", "b"], argvalues=[(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("c", ["only"])
def test_list_by_keywords(a, b, c):
    '''A parameter of one value makes no product.'''


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("a, b", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])
def test_product(isa, fixture, a, b, c):
    '''Three parameters and tables: the longest decides.'''


@pytest.mark.parametrize("c", [3, 4, 5])
class TestInClass:
    @pytest.mark.parametrize("a", [1, 2])
    def test_method(self, a, c):
        '''A parameter of the class, and one of the function.'''


def test_fixture(fixture):
    '''The values of a fixture are a list.'''


def test_size(sized):
    '''The size that this run has.'''
    assert sized("quick", "full") == "SIZE"
"""
COUNTS = {  # of each test: cases of the quick run, and of the full run
    "test_one": (1, 1),
    "test_table": (1, len(_core.by_isa)),
    "test_other_table": (1, 1),
    "test_list": (6, 6),
    "test_list_of_pairs": (6, 6 * len(_core.by_isa)),
    "test_gaps": (3, 6 * len(_core.by_isa)),
    "test_few": (3, 8 * len(_core.by_isa)),
    "test_list_by_keywords": (3, 3),
    "test_product": (5, 20 * len(_core.by_isa)),
    "test_method": (3, 6),
    "test_fixture": (2, 2),
    "test_size": (1, 1),
}
QUICK, FULL = (sum(column) for column in zip(*COUNTS.values(), strict=True))


@pytest.fixture
def folder(pytester, monkeypatch):
    """Return a folder of tests in a project whose own folder is the current one."""
    monkeypatch.delenv("RELPOS_PASSED", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time
    pytester.makeini("[pytest]\ntestpaths = folder")
    return pytester.mkdir("folder")


@pytest.fixture
def run(pytester, folder):
    """Return a function that runs the file of tests."""

    def run_file(*arguments, size):
        text = FILE.replace("SIZE", size)
        (folder / "test_file.py").write_text(text, "utf-8")
        return pytester.runpytest_inprocess("-p", "selection", *arguments)

    return run_file


def test_without_a_name_a_part_runs_and_the_last_line_says_of_how_much(run, folder):
    (folder / "example.py").write_text("'''\n>>> 1 + 1\n2\n'''\n", "utf-8")
    result = run("-v", "--doctest-modules", size="quick")
    assert result.parseoutcomes()["passed"] == QUICK + 1
    assert result.outlines[-1] == f"pytest --full runs {FULL + 1} cases"
    text = result.stdout.str()
    for name, (quick, _) in COUNTS.items():
        assert len(re.findall(rf"::{name}\b.* PASSED", text)) == quick
    ids = re.findall(rf"::test_product\[{BEST}-([^\]]*)", text)
    cases = [re.fullmatch("(.)-(.-.)-(.*)", case).groups() for case in ids]
    assert [set(column) for column in zip(*cases, strict=True)] == [
        {"p", "q"},
        {"1-1", "1-2", "2-1", "2-2", "3-1"},
        {"True", "False"},
    ]


@pytest.mark.parametrize("arguments", [[], ["folder"]])
def test_in_two_processes_the_same_cases_run(run, arguments, pytester, monkeypatch):
    """The process that reports writes the last line and the ids of what has passed."""
    pytest.importorskip("xdist")
    path = pytester.path / "passed"
    monkeypatch.setenv("RELPOS_PASSED", str(path))
    size = "full" if arguments else "quick"
    result = run("-p", "xdist.plugin", "-n", "2", *arguments, size=size)
    count = FULL if arguments else QUICK
    assert result.parseoutcomes() == {"passed": count}
    assert len(path.read_text("utf-8").splitlines()) == count
    last_line = f"pytest --full runs {FULL} cases"
    assert (result.outlines[-1] == last_line) == (not arguments)


def test_a_folder_runs_whole(run):
    result = run("folder", size="full")
    assert result.parseoutcomes() == {"passed": FULL}
    assert "--full" not in result.outlines[-1]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["folder", "-k", "test_product or TestInClass"], 5 + 3),
        (["folder/test_file.py", "-k", "test_product and 2-2-False and q"], 1),
    ],
)
def test_the_selection_of_what_is_named(run, arguments, count):
    """A case that -k leaves out stands for no value of a parameter."""
    result = run("--quick", *arguments, size="quick")
    assert result.parseoutcomes()["passed"] == count


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("arguments", "runs_all"),
    [
        ([], False),
        (["-p", "no:cacheprovider"], False),
        (["--lf"], False),  # where nothing has failed
        (["--ff", "-x", "--deselect", "folder/test_file.py"], False),
        (["--full", "--quick"], False),
        (["--quick", "folder"], False),
        (["--quick", "-m", "some"], False),
        (["--full"], True),
        (["--quick", "--full"], True),
        (["--full", "-p", "no:cacheprovider"], True),
        (["folder"], True),
        (["folder", "-p", "no:cacheprovider"], True),
        (["folder/test_file.py"], True),
        (["folder/test_file.py::test_product"], True),
        (["folder/test_file.py::test_product[1-2]"], True),
        (["--pyargs", "relpos"], True),
        (["-k", "some"], True),
        (["-m", "not some"], True),
    ],
)
def test_when_all_cases_run(pytester, folder, arguments, runs_all):
    (folder / "test_file.py").touch()
    config = pytester.parseconfigure("-p", "selection", *arguments)
    assert selection.runs_all(config) is runs_all


def test_a_folder_that_is_the_current_one_is_not_named(pytester, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert not selection.runs_all(pytester.parseconfigure("-p", "selection"))


def test_what_failed_last_runs_whole(run):
    """A case of --full that failed is none of the selection, and runs again."""
    run("--full", "-k", "test_size", size="another")
    result = run("--lf", size="full")
    assert result.parseoutcomes()["passed"] == 1


def test_the_passed_cases_are_appended_to_a_file(run, pytester, monkeypatch):
    path = pytester.path / "passed"
    path.write_text("before\n", "utf-8")
    monkeypatch.setenv("RELPOS_PASSED", str(path))
    result = run("-k", "test_one or test_fixture or test_size", size="another")
    assert result.parseoutcomes() == {"passed": 3, "failed": 1, "deselected": FULL - 4}
    assert path.read_text("utf-8").splitlines() == [
        "before",
        "folder/test_file.py::test_one",
        "folder/test_file.py::test_fixture[p]",
        "folder/test_file.py::test_fixture[q]",
    ]
