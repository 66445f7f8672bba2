"""The commands of each page are run in the page's order, as printed, and print what the page shows."""

import functools
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from tests.problems import ROOT, child_environment
from tests.test_docs import PAGES, blocks

SMALL = {
    "cosmoflow": ["--train", "32", "--validation", "8"],
    "deepcam": ["--train", "16", "--validation", "8", "--test", "0"],
    "oc20": ["--train", "16", "--validation", "4"],
}
COMMAND = re.compile(r"(\w+=\S+ )*(mlperf-hpc|python|torchrun|mpirun|srun|sbatch|cp|cd|mkdir|cat) ")
"""How a line begins that a page means to be typed."""
GATE = ("README.md",)
"""The pages whose commands the gate runs; of the others it runs the parsers."""
CANNOT = {
    r"\bpip install|-m (venv|pytest)\b|pre-commit|\bmake ": "changes the environment of the tests",
    r"^(srun|sbatch|mpirun)\b|--node|--container": "needs a cluster",
    r"\bfetch\b(?!.*(--list|--dry-run))|https://|s3://|\bgit ": "needs the network",
    r"cosmoUni|All-Hist|\bs2ef\b|ClimateNet|data/mine|/data/|data/(oc20|cosmoflow)(?![-\w])": "needs published data",
    r"\btrain \w+ (config|gbs\d+)(?!.*--print-config)|\.train (config|gbs\d+)": "needs the full-size data",
    r"full-size|data/(\S+-)?(128|512|64|small|slabs|full|lmdb|raw)\b": "makes or needs gigabytes of data",
    r"\bmeasure (cosmoflow|deepcam|oc20)\b(?! mini)|-m \w+ measure\b(?! mini)|\baccept --record|-measure/|runs/now": (
        "measures for minutes"
    ),
    r"source[ =]'command:node:watts:COMMAND": "needs a meter of power",
    r"litmatter(?!.*--dry-run)|left-out|instances/|runs/weak/|runs/batch": "takes hours, or needs runs that do",
    r"MyCompany|training_results_v|--round 6\.1": "needs logs of MLPerf Training",
    r"ocean.eddies": "tests/test_installed.py makes and trains one",
    r"my-|own\.py|base\.json|cluster\.json|data/universes|plan\.yaml|\.sif|old/|FILE|DIR|NAME": "needs readers' files",
}
"""What is not run, and why; tests/test_docs.py parses the arguments of these, too."""
SHORTER = {
    r"(data synthesize (\w+) data/\S+(?: --seed \d+)?)$": lambda match: " ".join([match[1], *SMALL[match[2]]]),
    r"(synthesize \w+) --plot": r"\1 data/drawn --train 8 --validation 8 --plot",
    r"(round --config mini(?!.*--(benchmarks|emit)).*)": r"\1 --emit plain",
    r"(\btrain \w+ mini)$": r"\1 train.epochs=2",
    r"=128,256\b": "=16,32",
    r"=/tmp/": "=",
}
"""What makes a command end in seconds, as parts of its line."""
STATUSES = {"train": {0, 4}, "check": {0, 1}, "evaluate": {0, 1}, "round": {0, 1}}
"""The exit statuses of commands that miss the target on few samples; of all others 0."""
MADE = re.compile(
    r"(?:-o|--output|--plot|--keep|--data|output_dir=| synthesize \w+|weights export \S+|cp -r \S+) ?(\S+)"
)
"""What a command makes; it is removed before, as readers begin without it."""


def typed(page):
    """Yield the commands of a page that are typed, each with the lines of output that the page shows."""
    for block in blocks(page):
        lines = block.replace("\\\n", " ").splitlines()
        marks = [i for i, line in enumerate(lines) if line.startswith("$ ")]
        for i, end in pairwise([*marks, len(lines)]):
            yield without_comment(lines[i].removeprefix("$ ")), [line for line in lines[i + 1 : end] if line.strip()]
        if not marks and not block.startswith("#!"):
            yield from ((without_comment(line), []) for line in lines if COMMAND.match(line))


def without_comment(line):
    return re.split(r"\s+# ", line)[0]


def reason(line):
    """Return why a command cannot be run here, None if it can."""
    return next((why for pattern, why in CANNOT.items() if re.search(pattern, line)), None)


RUN = {
    page: commands for page in PAGES if (commands := [(line, shown) for line, shown in typed(page) if not reason(line)])
}


def masked(line):
    """Return a line without what changes from run to run: numbers, hashes, columns and bars.

    Nor has it bf16 and fp32, on any page: a line of a figure of merit names what the processor has.
    """
    return re.sub(r"[0-9a-f]{8,}|\b(?:bf16|fp32)\b|[\d.,:]+|[-─━█▏▎▍▌▋▊▉ ]+", " ", line).strip()


def ended_with(done):
    """Return the exit status of a command; of torchrun, whose own is always 1, that of the rank that failed first."""
    ranks = re.findall(r"^  exitcode +: (-?\d+)", done.stdout, re.M)
    return int(ranks[-1]) if ranks else done.returncode


def type_line(folder, line):
    """Type a command in a folder, and fill in what a description of the machine leaves open; return how it ended."""
    environment = {name: value for name, value in child_environment().items() if name not in ("SCRATCH", "TMPDIR")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-uc", line],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    for path in folder.glob("*.json") if "submit system -o" in line else ():
        path.write_text(re.sub(r'"TO BE FILLED IN\W*(\w*)[^"]*"', r'"\1"', path.read_text()))
    return done


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Return a function that gives a folder with what pages begin with, and the data and a run of some benchmarks.

    The demo's logs, loose ones too, a description; and with a run a package, weights and predictions.
    """
    folder = tmp_path_factory.mktemp("desk")

    @functools.cache
    def make_data(name):
        type_all([f"mlperf-hpc data synthesize {name} data/{name}-mini {' '.join(SMALL[name])}"])

    @functools.cache
    def train(name):
        lines = [f"mlperf-hpc train {name} mini train.epochs=1 checkpoint.best=true; [ $? = 4 ]"]
        if name == PACKAGES[0]:
            lines += [
                f"mlperf-hpc submit assemble runs/{name}-mini -o package --system laptop.json",
                f"mlperf-hpc weights export runs/{name}-mini {name}.safetensors",
                f"mlperf-hpc predict {name} runs/{name}-mini -o predictions.npz",
            ]
        type_all(lines)

    def type_all(lines):
        for line in lines:
            done = type_line(folder, line)
            assert done.returncode == 0, f"{line}\n{done.stdout}"

    def prepare(names, trained):
        for name in names:
            make_data(name)
            if name in trained:
                train(name)
        return folder

    type_all(
        [
            "mlperf-hpc demo --keep examples",
            "cp -r examples/*.txt examples/University .",
            "cp -r examples/University/results/example_n64/strong/cosmoflow logs",
            "sed -i s/example_n64/laptop/ logs/*.txt",
            "mlperf-hpc submit system -o laptop.json --set submitter='Example Organization'",
        ]
    )
    return prepare


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=(name := str(page.relative_to(ROOT))), marks=[pytest.mark.exhaustive] * (name not in GATE)
        )
        for page in RUN
    ],
)
@pytest.mark.usefixtures("untraced")
def test_a_page_works_as_printed(page, desk, tmp_path, request):
    """Up to ten minutes for the longest page: each command imports torch, many train."""
    text = "\n".join(line for line, _ in RUN[page])
    needed = [name for name in PACKAGES if name in text or (name == PACKAGES[0] and re.search("runs/|package/", text))]
    folder = tmp_path / "reader"
    # A page that makes its own run, and asks for nothing that is made of one, needs the data alone.
    own = (
        []
        if re.search(r"package/|\.safetensors|\.npz", text)
        else re.findall(r"^mlperf-hpc train (\w+) mini$", text, re.M)
    )
    shutil.copytree(desk(needed, set(needed) - set(own)), folder)
    if any("hpc_results_v" in line or re.search(r"\bv\d\.\d/", line) for line, _ in RUN[page]):
        for published in request.getfixturevalue("corpus").iterdir():
            for name in (f"hpc_results_{published.name}", published.name):
                (folder / name).symlink_to(published)
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S):
        (folder / "weak.yaml").write_text(text)  # the only file that a page lets readers write
    wrong = []
    for line, shown in RUN[page]:
        short = line
        for pattern, replacement in SHORTER.items():
            short = re.sub(pattern, replacement, short)
        if made := re.search(r"(?:train (\w+)|-m (\w+)\.train) mini(?!.*(resume|--print|output_dir))", short):
            shutil.rmtree(folder / f"runs/{made[1] or made[2]}-mini", ignore_errors=True)
        for name in MADE.findall(short):
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        done = type_line(folder, short)
        word = re.search(r"(?<=mlperf-hpc )\w+|(?<=\.)(?:train|evaluate|check)\b", short)
        status, of_torchrun = ended_with(done), done.stdout.count("ChildFailedError: \n")
        if status not in STATUSES.get(word and word[0], {0}) or done.stdout.count("Traceback") > of_torchrun:
            wrong.append(f"$ {short}\nexit status {status}\n{done.stdout[-2000:]}")
        printed = {masked(text) for text in done.stdout.splitlines()} | {"…"}
        missing = [text for text in shown if masked(text) not in printed and "…" not in text]
        if missing:
            wrong.append(
                f"$ {line}\nshown, but not printed:\n" + "\n".join(missing) + f"\nprinted:\n{done.stdout[-2000:]}"
            )
    assert not wrong, "\n\n".join(wrong)


def test_what_is_not_run_is_on_a_page():
    lines = [line for page in PAGES for line, _ in typed(page)]
    assert [pattern for pattern in CANNOT if not any(re.search(pattern, line) for line in lines)] == []


def test_commands_need_no_variable_that_is_not_set():
    """But in job scripts, where the scheduler sets them, and where the page sets them before."""
    wrong = []
    for page in PAGES:
        own = set(re.findall(r"\b([A-Za-z_]+)=", "\n".join(line for line, _ in typed(page))))
        wrong += [
            f"{page.relative_to(ROOT)}: {line}"
            for line, _ in typed(page)
            if set(re.findall(r"(?<!\\)\$\{?([A-Z_]+)(?!\w|:-)", line)) - own - {"HOME", "USER", "PWD"}
        ]
    assert wrong == [], "write a folder, or ${SCRATCH:-/tmp}, for a variable that few machines set"
