"""python -m benchmarks: who is asked, checked, timed, named; what is written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import __main__, grid, memory, rows, text, timing, worker
from benchmarks.ours import RELPOS, exact_results, largest_error
from benchmarks.peers import PEERS, Peer, Skipped
from benchmarks.problems import MODES, NETWORK, SCHEMES, label_of, problem_of
from benchmarks.results import Results
from relpos._bench import Sample
from relpos._schemes import scheme_called

SHAPE = (1, 2, 24, 64)


def spec(*peers, mode="fwd", scheme="music", shape=SHAPE, **more):
    return rows.Spec(scheme, True, mode, shape, 1, peers, **more)


def refuses(case, mode, threads):
    raise Skipped("no backward on CPU")


def fails(case, mode, threads):
    raise RuntimeError("index out of bounds\nand a long trace")


def slightly_wrong(case, mode, threads):
    work = RELPOS.prepare(case, mode, threads)
    return lambda: {name: x * np.float32(1.001) for name, x in work().items()}


FAKES = (
    Peer("right", True, None, RELPOS.prepare),
    Peer("wrong", False, None, slightly_wrong),
    Peer("refuses", False, None, refuses),
    Peer("fails", False, None, fails),
    Peer("absent", False, "no_such_package", RELPOS.prepare),
)


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setattr(rows, "PEERS", FAKES)
    return tuple(peer.name for peer in FAKES)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwdbwd", "decode"])
@pytest.mark.parametrize("scheme", grid.SCHEMES)
def test_relpos_gives_every_result_that_is_asked_for(scheme, mode):
    case = problem_of(scheme, True, SHAPE, mode)
    got = RELPOS.prepare(case, mode, 1)()
    wanted = exact_results(case, mode, 1)
    names = {"out"} if mode in ("fwd", "decode") else {*case.arrays}
    assert {*got} == names | ({"out"} if mode == "fwdbwd" else set())
    assert 0 < largest_error(got, wanted) < 2e-6
    assert largest_error({}, wanted) == np.inf


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_measured_in_every_mode(scheme, mode, monkeypatch, capsys):
    """From the command line to the printed row, but for the process in between."""

    def here(specs, budget, known=()):
        return (rows.measure(each, 0.0) for each in specs)

    monkeypatch.setattr(worker, "records", here)
    shapes = ["1,2,24,8", "2,1,5,3", "1,1,2,1"]
    asked = ["--peers", "none", "--mode", mode, "--shape", *shapes]
    assert __main__.main(["--scheme", scheme, f"{scheme}_causal", *asked]) == 0
    printed = capsys.readouterr().out
    assert printed.count("1.00 x relpos") == 2 * len(shapes)
    assert "wrong" not in printed and "failed" not in printed


@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwdbwd", "decode"])
def test_an_error_of_a_network_is_found(mode):
    """FIRE's parameters are compared as one vector, of which each entry counts."""
    case = problem_of("fire", True, SHAPE, mode)
    got, wanted = RELPOS.prepare(case, mode, 1)(), exact_results(case, mode, 1)
    assert 0 < largest_error(got, wanted) < 2e-6
    if mode in ("bwd", "fwdbwd"):
        assert {*wanted} - {"out"} == {"query", "key", "value", "network"}
        sizes = [case.arrays[name].size for name in NETWORK]
        assert wanted["network"].shape == (sum(sizes),)
        got["network"] = got["network"] * np.float32(1.001)
        assert largest_error(got, wanted) > 1e-4


@pytest.mark.parametrize("mode", ["fwd", "fwdbwd", "decode"])
def test_only_right_results_are_timed_and_the_others_say_why(fakes, mode):
    row = rows.measure(spec(*fakes, mode=mode), 0.0)
    entrants = {each["name"]: each for each in row["entrants"]}
    assert [*entrants] == ["relpos", *fakes]
    for name in ("relpos", "right"):
        assert entrants[name]["seconds"] > 0
        assert entrants[name]["share"] > 0
        assert entrants[name]["error"] < 2e-6
        assert entrants[name]["tried"] == timing.FEWEST_ROUNDS
    assert entrants["wrong"]["skipped"].startswith("wrong result, error 1.0e-03")
    assert entrants["refuses"]["skipped"] == "no backward on CPU"
    assert entrants["fails"]["skipped"] == "failed: RuntimeError: index out of bounds"
    assert entrants["absent"]["skipped"] == "needs no_such_package"
    printed = text.of_row(row)
    assert all(name in printed for name in entrants)
    assert json.loads(json.dumps(row))["label"] == spec(mode=mode).label


def test_a_backward_alone_is_of_relpos_only(fakes):
    row = rows.measure(spec("right", mode="bwd"), 0.0)
    ours, other = row["entrants"]
    assert ours["seconds"] > 0
    assert "relpos only" in other["skipped"]


def test_works_take_turns_in_both_orders():
    calls = []
    works = {name: lambda name=name: calls.append(name) for name in "abc"}
    ticks = iter(range(10**6))
    first, kinds = dict.fromkeys(works, 1.0), dict.fromkeys(works, "loop")
    samples = timing.alternate(
        works, lambda: 1.0, lambda: next(ticks), 1e9, first=first, kinds=kinds
    )
    assert "".join(calls) == "abccba" * (timing.ROUNDS // 2) + "abc"
    assert all(len(each.kept) == timing.ROUNDS for each in samples.values())


def test_who_is_far_off_is_said_of_each_kind():
    first = {"ours": 1.0, "loop": 3.0, "slow loop": 4.0, "library": 9.0}
    kinds = {"ours": 0, "loop": 1, "slow loop": 1, "library": 2}
    assert timing.far_off(first, kinds) == {"slow loop"}


def test_a_sample_at_a_clock_that_moved_counts_only_for_want_of_others():
    samples = timing.Samples()
    samples.add(Sample(1.0, 1.0, 1.1))
    assert (samples.kept, samples.seconds) == ([], 1.0)
    for _ in range(3):
        samples.add(Sample(2.0, 1.0, 1.01))
    assert len(samples.all) == 3
    assert samples.cost == pytest.approx(2.01)


def test_peers_have_names_of_their_own():
    names = [peer.name for peer in PEERS]
    assert len(names) == len({*names})
    assert "relpos" not in names


def test_rows_of_the_grid_are_there_once_and_the_quick_ones_among_them():
    labels = [each.label for each in grid.grid()]
    assert len(labels) == len({*labels}) > 80
    quick = [each.label for each in grid.quick()]
    assert {*quick} < {*labels}
    assert 20 < len(quick) < 30


def test_a_peer_far_behind_is_left_out_where_calls_take_seconds():
    def row(length, **times):
        about = [{"name": "relpos", "ready_made": False, "seconds": 1.0}]
        about += [
            {"name": name, "ready_made": name == "ready", "seconds": time}
            for name, time in times.items()
        ]
        shape = [1, 8, length, 64]
        fields = {"scheme": "music", "is_causal": True, "mode": "fwd", "threads": 1}
        return {**fields, "shape": shape, "entrants": about}

    before = [row(512, near=9, far=1), row(1024, near=1, far=2, ready=9)]
    names = ("near", "far", "ready", "new")
    long = spec(*names, shape=(1, 8, 2048, 64))
    (far,) = worker.far_behind(long, before)
    assert far == {"name": "far", "ready_made": False, "skipped": worker.FAR_BEHIND}
    then = row(2048, near=1, ready=9)
    then["entrants"].append(far)
    longer = spec(*names, shape=(1, 8, 4096, 64))
    assert worker.far_behind(longer, [*before, then]) == [far]
    assert worker.far_behind(spec(*names, shape=(1, 8, 1024, 64)), before) == []
    assert (
        worker.far_behind(spec(*names, mode="fwdbwd", shape=long.shape), before) == []
    )
    assert worker.far_behind(spec("near", shape=long.shape), before) == []


def test_a_process_that_ends_costs_its_row_and_no_other(monkeypatch, capsys):
    asked = [spec(scheme=name) for name in ("plain", "music", "xl")]

    def run_child(specs, budget, before):
        for each in specs:
            if each.scheme == "music":
                return
            yield {"label": each.label}

    monkeypatch.setattr(worker, "run_child", run_child)
    done = [row["label"] for row in worker.records(asked, 0.0)]
    assert done == [asked[0].label, asked[2].label]
    assert f"{asked[1].label}: the process ended" in capsys.readouterr().err


def test_rows_are_written_as_they_come_and_kept(tmp_path, capsys):
    file = tmp_path / "out.json"
    few = ["--shape", "1,2,24,64", "--peers", "none", "--seconds", "0"]
    run = [*few, "--json", str(file), "--missing"]
    assert __main__.main([*run, "--scheme", "plain", "--mode", "fwd"]) == 0
    first = json.loads(file.read_text())
    (row,) = first["rows"]
    assert row["label"] == "plain fwd 1,2,24,64"
    assert row["entrants"][0]["name"] == "relpos"
    assert first["memory"] == []
    again = [*run, "--scheme", "plain", "music_causal", "--mode", "fwd", "--memory"]
    assert __main__.main(again) == 0
    second = json.loads(file.read_text())
    assert second["rows"][0] == row
    labels = ["plain fwd 1,2,24,64", "music causal fwd 1,2,24,64"]
    assert [each["label"] for each in second["memory"]] == labels
    assert second["memory"][0]["entrants"][0]["bytes"] >= 0
    assert "x relpos" in capsys.readouterr().out


def test_numbers_are_written_with_four_digits(tmp_path):
    results = Results({"cpu": "a CPU"})
    results.rows["a"] = {"label": "a", "entrants": [{"seconds": 0.123456, "kept": 15}]}
    results.write(tmp_path / "a" / "b.json")
    found = Results.read(tmp_path / "a" / "b.json")
    assert found.facts == {"cpu": "a CPU"}
    assert found.rows["a"]["entrants"] == [{"seconds": 0.1235, "kept": 15}]


@pytest.mark.parametrize(
    "arguments",
    [["--shape", "1,2,3"], ["--shape", "1,2,0,4"], ["--scheme", "waltz"],
     ["--mode", "sideways"], ["--peers", "nobody"]],
)  # fmt: skip
def test_a_wrong_option_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(arguments)
    assert end.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_rows_asked_for_are_all_combinations():
    asked = "--scheme plain xl_causal --mode fwd decode --threads 1 2"
    options = __main__.parser().parse_args(asked.split())
    labels = [each.label for each in __main__.chosen(options)]
    assert len(labels) == 8
    assert labels[0] == "plain fwd 1,8,1024,64"
    assert labels[1] == "plain causal decode 1,8,1024,64"
    assert labels[-2] == "xl causal fwd 1,8,1024,64, 2 threads"


@pytest.mark.parametrize("label", SCHEMES)
def test_a_scheme_has_all_its_names(label):
    for name in scheme_called(SCHEMES[label].name).names:
        assert label_of(name) == label
        asked = __main__.parser().parse_args(["--scheme", f"{name}_causal"])
        assert [spec.scheme for spec in __main__.chosen(asked)] == [label] * 2
        assert all(spec.is_causal for spec in __main__.chosen(asked))
        found = problem_of(name, True, (1, 1, 4, 4), "fwd")
        assert found.scheme == problem_of(label, True, (1, 1, 4, 4), "fwd").scheme


def test_memory_that_nobody_knows_is_said():
    entrants = [{"name": "a", "bytes": 2_500_000}, {"name": "b", "bytes": None},
                {"name": "c", "skipped": "needs torch"}]  # fmt: skip
    printed = text.of_memory({"label": "a row", "entrants": entrants})
    assert "2.5 MB" in printed
    assert "unknown" in printed
    assert "needs torch" in printed
    assert min(each.shape[2] for each in grid.memory()) > memory.WARM_LENGTH
