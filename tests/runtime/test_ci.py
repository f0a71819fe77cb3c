""".ci/run: which stages it runs, in which order, and how one that fails ends it.

Its stages are a few of our own here, in a copy.
"""

import shutil
import subprocess

import pytest
from documents import ROOT

RUN = ROOT / ".ci" / "run"
pytestmark = [
    pytest.mark.skipif(not RUN.exists(), reason="no source tree"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]
STAGES = """
prepare() { echo prepared; }
stage copy 5 "" "what others use"
stage_copy() { echo copied >"$work/copy"; }
stage reads 5 copy "uses it"
stage_reads() { cat "$work/copy"; echo "3 passed"; }
stage alone 5 "" "uses nothing"
stage_alone() { echo "4 passed"; }
stage breaks 5 copy "fails halfway"
stage_breaks() { echo "before"; false; echo "after"; }
stage never 5 breaks "uses what fails"
stage_never() { echo "unreachable"; }
thorough slow 5 alone "takes long"
stage_slow() { echo "5 passed"; }
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    (tmp_path / ".ci" / "stages").write_text(STAGES)

    def run(*arguments):
        return subprocess.run(
            ["bash", ".ci/run", *arguments],
            check=False,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_the_list_names_every_stage(run):
    done = run("--list")
    assert done.returncode == 0
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    daily = [[name, "run"] for name in ("copy", "reads", "alone", "breaks", "never")]
    assert rows == [*daily, ["slow", "--all"]]
    assert "uses nothing" in done.stdout
    assert "prepared" not in done.stdout


def test_a_named_stage_runs_after_what_it_needs_and_without_the_others(run):
    done = run("reads")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("all passed: copy reads")
    assert "\ncopied\n3 passed\n" in done.stdout
    assert "4 passed" not in done.stdout


def test_a_failure_fails_the_run_by_name_after_the_others_have_ended(run):
    done = run()
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].endswith("failed: breaks never (not run)")
    assert "\nbefore\n" in done.stdout
    assert "after\n" not in done.stdout
    assert "unreachable" not in done.stdout
    assert "3 passed" in done.stdout
    assert "4 passed" in done.stdout
    assert "5 passed" not in done.stdout
    assert "\n==== the last lines of breaks\nbefore\n====" in done.stdout


def test_all_runs_the_thorough_stages_too(run):
    done = run("--all")
    assert done.returncode == 1
    assert "4 passed" in done.stdout
    assert "5 passed" in done.stdout


def test_all_leaves_out_a_stage_if_another_does_more(tmp_path, run):
    with (tmp_path / ".ci" / "stages").open("a") as file:
        file.write("wider slow reads\n")
    assert "3 passed" not in run("--all").stdout
    assert "3 passed" in run().stdout


def test_two_stages_run_at_a_time_and_an_alone_one_by_itself(tmp_path, run):
    stages = """
prepare() { :; }
alone stage first 5 "" "runs by itself, at once"
stage_first() { note; }
stage second 5 "" "runs beside the next"
stage_second() { note; }
stage third 5 "" "runs beside the one before"
stage_third() { note; }
alone stage fourth 5 "" "runs by itself, at the end"
stage_fourth() { note; }
note() {
    echo begin >>"$work/notes"
    sleep 1
    echo end >>"$work/notes"
    cat "$work/notes"
}
"""
    (tmp_path / ".ci" / "stages").write_text(stages)
    done = run("second", "first", "fourth", "third")
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.split("==== fourth: runs by itself, at the end\n")
    notes = "".join(word[0] for word in last.split("====")[0].split())
    assert notes == "bbee" + "be" + "be"
    done = run()
    assert done.stdout.splitlines()[0] == "[0s] first starts"


def test_each_stage_has_a_file_for_the_tests_that_pass_and_its_time_is_listed(
    tmp_path, run
):
    stages = """
prepare() { :; }
stage named 5 "" "says where its tests write"
stage_named() { echo "$RELPOS_PASSED is in $work"; }
"""
    (tmp_path / ".ci" / "stages").write_text(stages)
    lines = run().stdout.splitlines()
    path, folder = next(line for line in lines if " is in " in line).split(" is in ")
    assert path == f"{folder}/passed-named"
    assert lines[lines.index("seconds  of  stage") + 1].split()[1:] == ["5", "named"]


def test_an_unknown_stage_is_refused_before_any_work(run):
    done = run("alone", "lnit")
    assert done.returncode == 2
    names = "copy reads alone breaks never slow"
    assert done.stderr == f"no stage lnit; there are: {names}\n"
    assert done.stdout == ""


def test_every_stage_has_a_function_and_a_need_declared_before_of_the_same_run():
    script = """
declare -a names=(); declare -A needs daily
thorough() { names+=("$1"); needs[$1]=$3; [ -z "$3" ] || [ -n "${needs[$3]+x}" ]; }
stage() { thorough "$@"; [ -z "$3" ] || [ -n "${daily[$3]+x}" ]; daily[$1]=1; }
alone() { "$@"; }
wider() { [ -n "${needs[$1]+x}" ] && [ -n "${daily[$2]+x}" ]; }
set -e; . .ci/stages
for name in "${names[@]}"; do declare -F "stage_$name"; done
"""
    done = subprocess.run(
        ["bash", "-c", script], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 10
