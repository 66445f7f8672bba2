"""What a submitter does wrong in an ordinary night, and what the check says first: the cause, where, and a fix."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from compliance import check_logs
from compliance.check import main
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage

STRONG, WEAK = f"results/{SYSTEM}/strong/deepcam", f"results/{SYSTEM}/weak/deepcam"
DESCRIPTION, CODE = f"systems/{SYSTEM}.json", "benchmarks/deepcam/implementations/torch"
SLURM = "slurmstepd: error: *** STEP 4711.0 ON node01 CANCELLED DUE TO TIME LIMIT ***\nsrun: Job step aborted\n"
TOKEN = "hf_" + "QmZyTxLwKbVnRgJcHdFsPaEoUiWqXvBtYr"


# -- what damages a file or a folder ------------------------------------------------------------------------------


def log_paths(package: Path, folder: str = STRONG) -> list[Path]:
    return [package / folder / f"result_{number}.txt" for number in range(1, 6)]


def log_path(package: Path, number: int = 1) -> Path:
    return package / STRONG / f"result_{number}.txt"


def move(package: Path, old: str, new: str) -> None:
    (package / new).parent.mkdir(parents=True, exist_ok=True)
    (package / old).rename(package / new)


def substitute(path: Path, pattern: str, new: str) -> None:
    """Replace what matches a pattern; some must."""
    text, count = re.subn(pattern, new, path.read_text())
    assert count, f"no {pattern} in {path}"
    path.write_text(text)


def set_value(path: Path, key: str, value: object) -> None:
    """Give all records of a key this value."""
    substitute(path, rf'("key": "{key}", "value": )[^,]*', rf"\g<1>{json.dumps(value)}")


def drop_lines(path: Path, pattern: str) -> None:
    substitute(path, rf"(?m)^.*{pattern}.*\n", "")


def change_times(path: Path, change: Callable[[int], float]) -> None:
    text = path.read_text()
    path.write_text(re.sub(r'(?<="time_ms": )\d+', lambda match: str(change(int(match[0]))), text))


def miss_target(path: Path) -> None:
    substitute(path, r'("key": "eval_accuracy", "value": 0\.)[89]', r"\g<1>7")


def rename_all(package: Path, pattern: str) -> None:
    for number, path in enumerate(log_paths(package), 1):
        move(package, str(path.relative_to(package)), f"{STRONG}/{pattern.format(number)}")


def prepend_restart(path: Path) -> None:
    """Put the first half of a run that began two hours earlier before the run."""
    whole = path.read_text()
    change_times(path, lambda time_ms: time_ms - 7_200_000)
    begun = path.read_text().splitlines(keepends=True)
    path.write_text("".join(begun[: len(begun) // 2]) + whole)


def store(path: Path, content: str | bytes = b"\x00\x01") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def link_to_home(package: Path) -> None:
    for path in log_paths(package):
        home = package.parent / "home" / path.name
        store(home, path.read_bytes())
        path.unlink()
        path.symlink_to(home.resolve())


def compress(path: Path) -> None:
    store(path.with_name(path.name + ".gz"), gzip.compress(path.read_bytes()))
    path.unlink()


def in_logs(damage):
    """Do to all five logs what `damage` does to one; `in_log`: to the first only."""
    return lambda package: [damage(path) for path in log_paths(package)]


def in_log(damage):
    return lambda package: damage(log_path(package))


def add_file(name: str, content: str | bytes = b"\x00\x01"):
    return lambda package: store(package / name, content)


def pack_as(kind: str):
    return lambda package: shutil.make_archive(str(package), kind, package.parent, package.name)


def nest_folder(package: Path) -> None:
    package.rename(package.parent / "outer")
    package.mkdir()
    (package.parent / "outer").rename(package / package.name)


def leave_out_strong(package: Path) -> None:
    move(package, STRONG, f"results/{SYSTEM}/deepcam")
    (package / STRONG).parent.rmdir()


def add_mac_files(package: Path) -> None:
    for name in (f"{STRONG}/.DS_Store", f"{STRONG}/._result_1.txt", "__MACOSX/._results"):
        store(package / name, b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")


def leave_dumps(package: Path) -> None:
    store(log_path(package).with_name("core.4711"), b"\x7fELF\x02\x01\x01" + bytes(57))
    with log_path(package).with_name("epoch_9.ckpt").open("wb") as checkpoint:
        checkpoint.truncate(30 * 2**20)


def keep_three_instances(package: Path) -> None:
    for number in range(4, 9):
        (package / WEAK / f"result_{number}.txt").unlink()


def call_weak_strong(package: Path) -> None:
    shutil.rmtree(package / f"results/{SYSTEM}/strong")
    move(package, WEAK, STRONG)


def stop_early(path: Path) -> None:
    """Move run_stop before the evaluation that meets the target."""
    *lines, result, stop = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, stop, result]))


# -- the mistakes: what, and how ----------------------------------------------------------------------------------

DAMAGES = {
    "m01": ("one run of 5 deleted", lambda p: log_path(p, 5).unlink()),
    "m02": ("six runs instead of five, one copied", lambda p: shutil.copy(log_path(p, 1), log_path(p, 6))),
    "m03": ("logs numbered 0, 1, 3, 4, 5", lambda p: move(p, f"{STRONG}/result_2.txt", f"{STRONG}/result_0.txt")),
    "m04": ("logs named .log", lambda p: rename_all(p, "result_{}.log")),
    "m05": ("Result_1.TXT", lambda p: move(p, f"{STRONG}/result_1.txt", f"{STRONG}/Result_1.TXT")),
    "m06": ("result_01.txt", lambda p: rename_all(p, "result_{:02}.txt")),
    "m07": ("folder deepcam called DeepCAM", lambda p: move(p, STRONG, STRONG.replace("deepcam", "DeepCAM"))),
    "m08": ("deepcam logs in folder cosmoflow", lambda p: move(p, STRONG, STRONG.replace("deepcam", "cosmoflow"))),
    "m09": (
        "folder strong called Strong",
        lambda p: move(p, str(Path(STRONG).parent), str(Path(STRONG).parent).replace("strong", "Strong")),
    ),
    "m10": ("level strong/ left out", leave_out_strong),
    "m11": ("json named otherwise than its results", lambda p: move(p, DESCRIPTION, "systems/16xExample-A100.json")),
    "m12": ("system json forgotten", lambda p: (p / DESCRIPTION).unlink()),
    "m13": ("trailing comma in the system json", lambda p: substitute(p / DESCRIPTION, r"\n}", ",\n}")),
    "m14": ("typographic quotes in it", lambda p: substitute(p / DESCRIPTION, '"(.*?)"', r"“\1”")),
    "m15": ("number_of_nodes 18, not 16", lambda p: substitute(p / DESCRIPTION, '(nodes": )"16"', r'\1"18"')),
    "m16": ("division 'close'", lambda p: substitute(p / DESCRIPTION, '"closed"', '"close"')),
    "m17": ("a log cut in the middle of a line", in_log(lambda log: log.write_bytes(log.read_bytes()[:9_000]))),
    "m18": ("one run aborted", in_log(lambda log: substitute(log, "success", "aborted"))),
    "m19": ("two runs miss the target", lambda p: [miss_target(log_path(p, 1)), miss_target(log_path(p, 2))]),
    "m20": ("one run with another batch size", in_log(lambda log: set_value(log, "global_batch_size", 1024))),
    "m21": ("all runs state batch size 100", in_logs(lambda log: set_value(log, "global_batch_size", 100))),
    "m22": ("the same seed in all runs", in_logs(lambda log: set_value(log, "seed", 42))),
    "m23": ("seeds written as text", in_logs(lambda log: substitute(log, r'("seed", "value": )(\d+)', r'\1"\2"'))),
    "m24": ("seed line lost in one log", in_log(lambda log: drop_lines(log, '"seed"'))),
    "m25": ("a BOM before a log", in_log(lambda log: log.write_text("\ufeff" + log.read_text()))),
    "m26": ("all logs with CRLF", in_logs(lambda log: log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n")))),
    "m27": ("a log saved as UTF-16", in_log(lambda log: log.write_bytes(log.read_text().encode("utf-16")))),
    "m28": ("logs gzipped", in_logs(compress)),
    "m29": ("the whole package zipped", pack_as("zip")),
    "m30": ("the whole package as tar.gz", pack_as("gztar")),
    "m31": ("unzipped twice: Example/Example/", nest_folder),
    "m32": (".DS_Store, ._result_1.txt and __MACOSX", add_mac_files),
    "m33": ("benchmarks/ forgotten", lambda p: shutil.rmtree(p / "benchmarks")),
    "m34": ("benchmarks/deepcam forgotten", lambda p: shutil.rmtree(p / "benchmarks/deepcam")),
    "m35": ("an empty log", in_log(lambda log: log.write_text(""))),
    "m36": ("Slurm's output instead of a log", in_log(lambda log: log.write_text(SLURM))),
    "m37": ("a restarted job appended to its log", in_log(prepend_restart)),
    "m38": ("srun -l put '0: ' before each line", in_logs(lambda log: substitute(log, "(?m)^", "0: "))),
    "m39": ("all ranks wrote: each line twice", in_log(lambda log: substitute(log, "(?m)^(.*\n)", r"\1\1"))),
    "m40": ("benchmark 'deepcam '", in_log(lambda log: set_value(log, "submission_benchmark", "deepcam "))),
    "m41": ("an openfold log among them", in_log(lambda log: log.write_bytes(SampleLog("openfold").bytes()))),
    "m42": ("logs are links to my home", link_to_home),
    "m43": ("a link to nothing", in_log(lambda log: (log.unlink(), log.symlink_to("gone.txt")))),
    "m44": ("a folder name with a blank at the end", lambda p: move(p, f"results/{SYSTEM}", f"results/{SYSTEM} ")),
    "m45": ("logs say open, the json closed", in_logs(lambda log: set_value(log, "submission_division", "open"))),
    "m46": ("scaling.json with a comment", add_file(f"{STRONG}/scaling.json", '{\n "scaling_factor": 1.0  // none\n}')),
    "m47": ("logs in folders result_1/result_1.txt", lambda p: rename_all(p, "result_{0}/result_{0}.txt")),
    "m48": ("core dump and a checkpoint of 30 MB", leave_dumps),
    "m49": ("a token in run.sub", add_file("benchmarks/deepcam/implementations/torch/run.sub", f"export HF={TOKEN}\n")),
    "m50": ("an evaluation lost", in_log(lambda log: drop_lines(log, '"eval_accuracy".*"epoch_num": 3'))),
    "m51": ("learning rate lost in all logs", in_logs(lambda log: drop_lines(log, '"opt_lr"'))),
    "m52": ("seconds instead of milliseconds", in_log(lambda log: change_times(log, lambda time_ms: time_ms / 1000))),
    "m53": ("logs of another organisation", in_logs(lambda log: set_value(log, "submission_org", "Sample Corp"))),
    "m54": ("checked: results", lambda p: None),
    "m55": ("checked: results/SYSTEM", lambda p: None),
    "m56": ("checked: one result of two", lambda p: None),
    "m57": ("checked: the system json", lambda p: None),
    "m58": ("checked: a PDF", add_file("paper.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n")),
    "m59": ("a copy by a browser", lambda p: shutil.copy(log_path(p), log_path(p).with_name("result_1 (1).txt"))),
    "m60": (
        "a log of another organisation's result",
        in_log(lambda log: [set_value(log, "submission_org", "Sample Corp"), set_value(log, "global_batch_size", 512)]),
    ),
    "m61": (
        "seeds counted from 1",
        lambda p: [set_value(log, "seed", number) for number, log in enumerate(log_paths(p), 1)],
    ),
    "m62": (
        "results logged as text",
        in_log(lambda log: substitute(log, r'("key": "eval_accuracy", "value": )([\d.]+)', r'\1"\2"')),
    ),
    "m63": ("a log of Python dictionaries", in_log(lambda log: substitute(log, '"', "'"))),
    "m64": (
        "home directories in scripts",
        lambda p: [store(p / f"{CODE}/{name}.sh", f"cd /home/{name}.doe/data\n") for name in "abc"],
    ),
    "m65": ("results under another key", in_log(lambda log: substitute(log, "eval_accuracy", "val/iou"))),
    "m66": ("a log without its results", in_log(lambda log: drop_lines(log, "eval_accuracy"))),
    "m67": ("an interrupted rsync", lambda p: move(p, f"{STRONG}/result_5.txt", f"{STRONG}/.result_5.txt.Qz81Lk")),
    "m68": ("all logs in a folder run1/", lambda p: rename_all(p, "run1/result_{}.txt")),
    "m69": ("levels swapped", lambda p: [move(p, STRONG, f"{WEAK}/../../deepcam/strong")]),
    "m70": ("epoch for epoch_num", in_log(lambda log: substitute(log, '"epoch_num"', '"epoch"'))),
    "m71": (
        "tensors as Python prints them",
        in_log(lambda log: substitute(log, r'(accuracy", "value": )([\d.]+)', r"\1tensor(\2, device='cuda:0')")),
    ),
    "m72": ("times of time.monotonic()", in_log(lambda log: change_times(log, lambda time_ms: time_ms % 10**9))),
    "m73": ("times as dates", in_log(lambda log: substitute(log, r'(time_ms": )\d+', r'\1"2023-09-06T11:33:20"'))),
    "m74": ("records without metadata", in_log(lambda log: substitute(log, r', "metadata": {[^}]*}', ""))),
    "m75": ("run_end for run_stop", in_log(lambda log: substitute(log, "run_stop", "run_end"))),
    "m76": ("one GPU seen by a process", in_logs(lambda log: set_value(log, "accelerators_per_node", 1))),
    "m77": ("batches counted for samples", in_logs(lambda log: set_value(log, "train_samples", 474))),
    "m78": ("json in a folder", lambda p: move(p, DESCRIPTION, DESCRIPTION.replace(".json", f"/{SYSTEM}.json"))),
    "m79": ("a submodule not cloned", lambda p: [path.write_text("") for path in (p / CODE).iterdir()]),
    "m80": (
        "a run that Slurm ended, and no code",
        lambda p: [shutil.rmtree(p / "benchmarks"), in_log(lambda log: substitute(log, r".*run_stop.*", SLURM))(p)],
    ),
    "m81": (
        "two ranks wrote, at other times",
        in_log(lambda log: substitute(log, r'(?m)^(.*"time_ms": \d+)(\d)(.*\n)', r"\1\2\3\g<1>9\3")),
    ),
    "m82": ("status 'finished'", in_log(lambda log: substitute(log, '"success"', '"finished"'))),
    "m83": ("a test on one node among the runs", in_log(lambda log: set_value(log, "number_of_nodes", 1))),
    "m84": ("nanoseconds", in_log(lambda log: change_times(log, lambda time_ms: time_ms * 10**6))),
    "m85": ("epoch_end for epoch_stop", in_log(lambda log: substitute(log, "epoch_stop", "epoch_end"))),
    "m86": ("an empty folder for a log", in_log(lambda log: (log.unlink(), log.mkdir()))),
    "w01": ("pruned instances in 'pruned'", lambda p: move(p, f"{WEAK}/pruned_results", f"{WEAK}/pruned")),
    "w02": ("one instance missed the target", lambda p: miss_target(log_paths(p, WEAK)[0])),
    "w03": ("throughput runs in strong/", call_weak_strong),
    "w04": ("only 3 instances", keep_three_instances),
    "w05": ("a v2.0 package in hpc_results_v3.0/", lambda p: move(p, ".", "../../hpc_results_v3.0/Example")),
    "w06": ("system json in capitals", lambda p: move(p, DESCRIPTION, f"systems/{SYSTEM.upper()}.json")),
    "w07": ("a number instead of text", lambda p: substitute(p / DESCRIPTION, '(nodes": )"16"', r"\g<1>16")),
    "w09": ("v1.0: staging lost in one log", in_log(lambda log: drop_lines(log, '"staging_st.*"'))),
    "w10": ("v1.0: run_stop before the target", in_log(stop_early)),
    "w11": ("README.md and plots beside the logs", lambda p: [store(p / WEAK / n) for n in ("README.md", "loss.png")]),
    "w12": ("results called result", lambda p: move(p, "results", "result")),
    "w13": ("systems called system", lambda p: move(p, "systems", "system")),
}
PATHS = {
    "m29": "../Example.zip",
    "m30": "../Example.tar.gz",
    "m54": "results",
    "m55": f"results/{SYSTEM}",
    "m56": STRONG,
    "m57": DESCRIPTION,
    "m58": "paper.pdf",
    "w05": "../../hpc_results_v3.0/Example",
}
"""What is checked, where it is not the package: relative to it."""


# -- the packages that they damage --------------------------------------------------------------------------------


def strong() -> SamplePackage:
    return SamplePackage("deepcam", epochs=[8, 9, 9, 10, 11])  # without its fastest run the score is another


def weak() -> SamplePackage:
    return SamplePackage("deepcam", "2.0", scaling="weak", runs=8).with_time_to_train().prune(2)


def staged() -> SamplePackage:
    return SamplePackage("deepcam", "1.0").edit_all(lambda log: log.stage("run_start", 300_000))


def write_base(id_: str, folder: Path) -> Path:
    """Write the undamaged package into a folder and return where it is."""
    if id_ in ("w09", "w10"):
        return Path(staged().write(folder / "hpc_results_v1.0/Example"))
    if id_.startswith("w"):
        return Path(weak().write(folder / "hpc_results_v2.0/Example"))
    if id_ in ("m34", "m56"):
        SamplePackage("openfold").write(folder / "Example")
    return Path(strong().write(folder / "Example"))


def write_mistake(id_: str, folder: Path) -> str:
    """Write a damaged package and return what is checked, relative to the folder."""
    package = write_base(id_, folder)
    DAMAGES[id_][1](package)
    return str((package / PATHS.get(id_, ".")).resolve().relative_to(folder.resolve()))


# -- what the best possible answer says ---------------------------------------------------------------------------


class Answer(NamedTuple):
    """The verdict, and what the finding that is shown first says: its rule and text, where, and how to fix it.

    All but the verdict are regular expressions; without `first` there is neither an error nor a warning.
    """

    verdict: str
    first: str = ""
    place: str = ""
    fix: str = ""


HARMLESS = Answer("PASS")
LOG = "/deepcam/result_1.txt"
ANSWERS = {
    "m01": Answer("INCOMPLETE", "RUN01.* 4.* 5.*1 missing", "strong/deepcam", "missing run"),
    "m02": Answer(
        "FAIL", "RUN05.*(identical|copy|same).*result_1.txt", "result_6.txt", "(delete|remove) .*result_6.txt"
    ),
    "m03": HARMLESS,
    "m04": Answer("FAIL", "PKG03.*result_1.log", "deepcam", "rename .*result_.*.log"),
    "m05": Answer("FAIL", "PKG03.*Result_1.TXT", "deepcam/Result_1.TXT", "rename .*result_1.txt"),
    "m06": HARMLESS,
    "m07": Answer("FAIL", "PKG02.*'DeepCAM'", "strong/DeepCAM", "rename .*to deepcam"),
    "m08": Answer("FAIL", "RUN08.*'cosmoflow'.* deepcam", "strong/cosmoflow", "(rename|move) .*deepcam"),
    "m09": Answer("FAIL", "PKG01.*'Strong'", "/Strong", "rename .*strong"),
    "m10": Answer("FAIL", "PKG01.*strong", f"results/{SYSTEM}", "strong"),
    "m11": Answer("FAIL", f"PKG04.*{SYSTEM}", "systems/", f"rename systems/16xExample-A100.json to .*{SYSTEM}.json"),
    "m12": Answer("FAIL", f"PKG04.*(missing|no ).*{SYSTEM}", DESCRIPTION, "write .*systems/"),
    "m13": Answer("FAIL", "PKG04.*comma", f"{DESCRIPTION}:3[45]", "comma"),
    "m14": Answer("FAIL", "PKG04.*(typographic|curly|[“”])", f"{DESCRIPTION}:2", 'straight|typographic|curly|[“”"]'),
    "m15": Answer("FAIL", "RUN09.*16 nodes.*18", f"{LOG}:9|{DESCRIPTION}", "system description"),
    "m16": Answer("FAIL", 'PKG07.*"close"', DESCRIPTION, '"closed"'),
    "m17": Answer("WARN", "cut|truncated|incomplete|in the middle", f"{LOG}:50", "copy|whole|complete"),
    "m18": Answer("WARN", "QUA03.*aborted", f"{LOG}:71", "may fail"),
    "m19": Answer("FAIL", "QUA01.*target", f"{LOG}.*result_2.txt", "target"),
    "m20": Answer("FAIL", "RUN06.*1024.*256", f"{LOG}:11", "repeat"),
    "m21": HARMLESS,
    "m22": Answer("FAIL", "RUN04.*seed 42", "result_[15].txt:8", "seed of its own"),
    "m23": Answer("WARN", "OFFICIAL.*SET04.*seed", "deepcam", "number|quot"),
    "m24": Answer("FAIL", "RUN03.*seed", LOG, "seed"),
    "m25": HARMLESS,
    "m26": HARMLESS,
    "m27": Answer("WARN or FAIL", "FRM02.*UTF-16", LOG, "iconv"),
    "m28": Answer("FAIL", "result_1.txt.gz", "deepcam", "gunzip"),
    "m29": Answer("FAIL", "zip archive", "Example.zip", "unpack|unzip"),
    "m30": Answer("FAIL", "tar archive", "Example.tar.gz", "unpack|tar "),
    "m31": HARMLESS,
    "m32": Answer("WARN", "mac", r"\.DS_Store|__MACOSX", "delete|remove"),
    "m33": Answer("WARN", "PKG08.*no code", "Example", "add .*benchmarks/"),
    "m34": Answer("WARN", "PKG08.*deepcam", "benchmarks/deepcam", "add .*benchmarks/"),
    "m35": Answer("WARN or FAIL", "empty", LOG, "run|copy"),
    "m36": Answer("WARN or FAIL", "FRM03.*without a line of mlperf-logging", LOG, "in its place"),
    "m37": Answer("WARN", "FRM10.*(2|two) runs.*restart", f"{LOG}:36", "split|delete|remove|keep"),
    "m38": HARMLESS,
    "m39": Answer("WARN", "twice|2 times", LOG, "rank 0"),
    "m40": Answer("WARN", "SET02.*(blank|space)", f"{LOG}:3", "deepcam"),
    "m41": Answer("FAIL", "RUN08.*openfold", f"{LOG}:3", "in their place"),
    "m42": Answer("FAIL", "PKG33.*link", LOG, "copy"),
    "m43": Answer("FAIL", "link.*(not exist|nothing|no target)", LOG, "copy|the file|the log"),
    "m44": Answer(
        "FAIL", "(blank|space).*'example_n64 '|'example_n64 '.*(blank|space)", "results/example_n64 ", "rename"
    ),
    "m45": Answer("FAIL", "RUN08.*open.*closed", f"{LOG}:5", "system description|division"),
    "m46": Answer("WARN", "RCP07.*JSON.*comment", "deepcam/scaling.json:2", "delete the comment"),
    "m47": Answer("FAIL", "PKG03.*result_1", "deepcam/result_1", "move .*result_"),
    "m48": Answer("WARN", "PKG32.*core", "deepcam/core.4711", "delete|remove"),
    "m49": Answer("FAIL", "PRV02.*token", "torch/run.sub:1", "revoke"),
    "m50": Answer("WARN", "QUA06.*epoch 3", f"{LOG}:44", "metric|result|line"),
    "m51": Answer("FAIL", "SET03.*opt_lr.*5 (files|logs|runs)", LOG, "log "),
    "m52": Answer("WARN", "FRM10.*seconds", f"{LOG}:1", "1000|milliseconds"),
    "m53": Answer("WARN", "RUN09.*Sample Corp.*Example University", f"{LOG}:4", "submit your own"),
    "m54": HARMLESS,
    "m55": HARMLESS,
    "m56": HARMLESS,
    "m57": Answer("FAIL", "system description", DESCRIPTION, "system --check"),
    "m58": Answer("FAIL", "a PDF", "paper.pdf", "log"),
    "m59": Answer("FAIL", "RUN05.*same.*result_1.txt", r"result_1 \(1\).txt", r"remove result_1 \(1\).txt"),
    "m60": Answer("FAIL", "RUN06.*another result.*Sample Corp.*512", f"{LOG}:4", "the right logs? .*result_1.txt"),
    "m61": Answer("PASS", "RUN23.*small numbers: 1, 2, 3, 4, 5.*randomness"),
    "m62": Answer("WARN", "QUA02.*number", f"{LOG}:35", "JSON number"),
    "m63": Answer("WARN", "FRM04.*71 lines.*Python", f"{LOG}:1", "ast.literal_eval"),
    "m64": Answer("WARN", r"PRV02.*home directory.*3 lines: a.sh:1, b.sh:1, c.sh:1", "torch/a.sh:1", "variables"),
    "m65": Answer("WARN", "QUA01.*'val/iou' meant", f"{LOG}:35", "log it as eval_accuracy"),
    "m66": Answer("WARN", "QUA01.*not logged.*one of . evaluations", LOG, "grep -v accuracy.*unfiltered"),
    "m67": Answer("FAIL", "PKG03.*copy of result_5.txt, unfinished", r"deepcam/\.result_5", "copy result_5.txt again"),
    "m68": Answer("FAIL", "PKG03.*'run1'", "deepcam/run1", "move .*run1/result_1.txt to result_1.txt"),
    "m69": Answer("FAIL", "PKG01.*'deepcam'", f"{SYSTEM}/deepcam", "swap .*deepcam/strong to strong/deepcam"),
    "m70": Answer("WARN", "ORD07.*epoch.*, 1, meant", LOG, "epoch_num"),
    "m71": Answer("WARN", "FRM04.*8 lines.*tensor", f"{LOG}:35", r"float\(value\).*perl"),
    "m72": Answer("WARN", r"FRM08.*time.monotonic\(\)", f"{LOG}:1", r"time.time\(\)"),
    "m73": Answer("WARN", "FRM04.*71 lines.*date", f"{LOG}:1", "fromisoformat"),
    "m74": Answer("WARN", "FRM04.*lacks.*metadata", f"{LOG}:1", "with mllog"),
    "m75": Answer("WARN", "ORD05.*'run_end' meant", f"{LOG}:71", "log it as run_stop"),
    "m76": Answer("FAIL", "RUN09.*1 accelerators.*result_1.txt:10", DESCRIPTION, "system description.*repeat the runs"),
    "m77": Answer("FAIL", "SET05.*474", f"{LOG}:", "not that of batches"),
    "m78": Answer("FAIL", f"PKG04.*{SYSTEM}", DESCRIPTION, f"move systems/{SYSTEM}/.* to systems/{SYSTEM}.json"),
    "m79": Answer("FAIL", "PKG26.*torch.*empty", "torch.json", "submodule update"),
    "m80": Answer("WARN", "ORD05.*Slurm.*time limit", f"{LOG}:71", "longer time limit"),
    "m81": Answer("WARN", "FRM10.*2 times", LOG, "first line of each record.*awk"),
    "m82": Answer("WARN", 'QUA03.*"finished"', f"{LOG}:71", 'reached the target, log "success"'),
    "m83": Answer("FAIL", "RUN06.*number_of_nodes.*1 in result_1", f"{LOG}:9", "leave out .*test"),
    "m84": Answer("WARN", "FRM10.*nanoseconds", f"{LOG}:1", "1e6"),
    "m85": Answer("WARN", "ORD07.*'epoch_end' meant", LOG, "log it as epoch_stop"),
    "m86": Answer("FAIL", "PKG03.*folder 'result_1.txt'", LOG, "copy result_1.txt again"),
    "w01": Answer("WARN", "'pruned'.*pruned_results", "weak/deepcam/pruned", "rename .*pruned_results"),
    "w02": Answer("FAIL", "QUA01.*target", "weak/deepcam/result_1.txt:75", "target"),
    "w03": Answer("FAIL", "RUN01.* 8.* 5", "strong/deepcam", "weak"),
    "w04": Answer("INCOMPLETE", "RUN01.* 3.* 5.*2 missing", "weak/deepcam", "repeat all"),
    "w05": HARMLESS,
    "w06": Answer("FAIL", f"PKG04.*{SYSTEM}", "systems/", f"rename systems/{SYSTEM.upper()}.json to .*{SYSTEM}.json"),
    "w07": Answer("WARN", "PKG06.*number_of_nodes.*16", DESCRIPTION, "quotes"),
    "w09": Answer("PASS or WARN", "staging", "result_1.txt", "staging"),
    "w10": Answer("WARN", "QUA01.*run_stop", f"{LOG}:78", "run_stop"),
    "w11": Answer("WARN", "PKG03.*README.md", "weak/deepcam/README.md", "move|delete|remove"),
    "w12": Answer("FAIL", "PKG01.*'result'", "/results?", "rename .*result.* results"),
    "w13": Answer("FAIL", "PKG01.*'system'", "/systems?", "rename .*system.* systems"),
}
ABSENT = {
    "m10": "Round 0.7|SET0|ORD",
    "m19": "faster",
    "m56": "PKG27",
    "m60": "RUN09",
    "m62": "not reached|nothing to do",
    "m67": "number of runs is",
    "m69": "strong/strong|PKG02",
    "m77": "at the speed of training",
    "m83": "size of the system",
    "m85": "has no epoch_stop",
    "m63": "nothing to do|may fail: nothing",
}
"""What is nowhere in the answer: it would follow from the mistake, or is wrong."""
SCORES = dict.fromkeys(("m17", "m37", "m39", "m40", "m52"), ("34.68", "32.36"))
"""The score in minutes, and what it is once the file is repaired (of m17, a range)."""


def read_first_finding(text: str) -> tuple[str, str]:
    """Return the rule and text of the finding that is shown first, and its fix; "" where there is none."""
    for block in text.split("\n\n"):
        rule = re.match(r"(?:error|warning|note) (\w+)\n", block)
        if rule:
            prose = r"^ +(?:rule|why|fix): +(.*(?:\n {8,}.*)*)\n?"
            fix = re.search(prose.replace("rule|why|", ""), block, re.MULTILINE)
            entries = re.sub(prose, "", block[rule.end() :], flags=re.MULTILINE)
            return f"{rule[1]} {entries}", " ".join(fix[1].split()) if fix else ""
    note = re.search(r"^Notes .*:\n((?:  .*\n)+)", text, re.MULTILINE)
    return (note[1] if note else ""), (note[1] if note else "")


def is_in(pattern: str, text: str) -> bool:
    return bool(re.search(pattern, text, re.IGNORECASE | re.DOTALL))


@pytest.mark.parametrize("id_", ["m01", "m34", "w01", "w09"])
def test_the_packages_pass_undamaged(id_, tmp_path):
    report = check_logs(write_base(id_, tmp_path))
    assert (report.verdict, report.findings) == ("PASS", [])


@pytest.mark.parametrize("id_", DAMAGES)
def test_the_cause_comes_first(id_, tmp_path, monkeypatch, capsys):
    answer = ANSWERS[id_]
    checked = write_mistake(id_, tmp_path)
    monkeypatch.chdir(tmp_path)
    status = main([checked])
    text = capsys.readouterr().out
    verdict = text.splitlines()[-1].split(":")[0]
    finding, fix = read_first_finding(text)
    assert verdict in answer.verdict.split(" or "), text
    assert status == (verdict in ("FAIL", "INCOMPLETE"))
    if not answer.first:
        assert not re.search("^(error|warning) ", text, re.MULTILINE), text
    assert is_in(answer.first, finding), text
    assert is_in(answer.place, finding), text
    assert is_in(answer.fix, fix), text
    assert id_ not in ABSENT or not re.search(ABSENT[id_], text), text
    assert all(score in text for score in SCORES.get(id_, ())), text
