"""The presets of studies on this machine: what they cost, what they find, and whether a kill repeats a run.

    python bench/studies.py                              all presets, one after the other; about 40 minutes on two cores
    python bench/studies.py --presets unet litmatter     only these
    python bench/studies.py --work DIR --keep            also keeps the record

Each preset is killed (SIGKILL) when its first run has ended, and given again. The data of the mini problem are made
before. CPU time is user + system of all processes but the one run that the kill takes. What --work has already is not
made again, and then shows no CPU time. The exit status is 1 if a run was repeated, or if a preset fails or takes too
long.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import machine  # finds the tree, too
from records import add_keep_option, keep_record

from submission.runs.plan import RECORD
from submission.study.plan import list_presets

ROOT = Path(__file__).resolve().parents[1]
CPU_MINUTES = 10.0
"""What a preset may take."""
DATA = "data/cosmoflow-mini"
RESULTS = ("ended.json", "fom.json")


def list_finished(folder: Path) -> dict[str, int]:
    """Return the time, in ns since 1970, of each result of the runs in a study."""
    runs = [path.parent for path in folder.rglob(RECORD) if "attempts" not in path.parts]
    files = [run / name for run in runs for name in RESULTS if (run / name).exists()]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def call_study(preset: str, folder: Path, work: Path, kill: bool) -> tuple[float, int]:
    """Run a preset; return its CPU seconds and exit status. kill: when its first run has ended."""
    command = [sys.executable, "-m", "submission.study", preset, "-o", str(folder)]
    with open(work / f"{preset}.txt", "ab") as output:
        process = subprocess.Popen(
            command, cwd=work, stdout=output, stderr=output, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime, process.returncode
        if kill and list_finished(folder):
            process.send_signal(signal.SIGKILL)
        time.sleep(0.05)


def run_preset(preset: str, work: Path) -> dict[str, Any]:
    """Return what a preset takes and finds."""
    folder = work / preset
    begun = bool(list_finished(folder))
    killed_s, _ = (0.0, 0) if begun else call_study(preset, folder, work, kill=True)
    before = list_finished(folder)
    cpu_s, status = call_study(preset, folder, work, kill=False)
    after = list_finished(folder)
    study = json.loads((folder / "study.json").read_text())
    fits = [{"title": curve["title"], **fit} for curve in study["curves"] if curve["law"] for fit in curve["fits"]]
    return {
        "preset": preset,
        "paper": study["paper"],
        "runs": len(study["runs"]),
        "without_result": sum(bool(run["problem"]) for run in study["runs"]),
        "cpu_minutes": None if begun else (killed_s + cpu_s) / 60,
        "finished_before_the_kill": len(before),
        "repeated": sorted(name for name, time_ns in before.items() if after.get(name) != time_ns),
        "exit_status": status,
        "notes": study["notes"],
        "fits": fits,
    }


def find_faults(result: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a preset."""
    if result["repeated"]:
        yield f"{result['preset']}: repeated: {', '.join(result['repeated'])}"
    if result["exit_status"]:
        yield f"{result['preset']}: exit status {result['exit_status']}, {result['without_result']} runs without result"
    if (result["cpu_minutes"] or 0) > CPU_MINUTES:
        yield f"{result['preset']}: {result['cpu_minutes']:.1f} CPU minutes"


def write_page(results: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """Return the Markdown page."""
    faults = [fault for result in results for fault in find_faults(result)]
    lines = [
        "# Presets of studies on two cores",
        "",
        f"Measured by `bench/studies.py` on {machine.describe_machine(about)}, load",
        f"average {about['load']:.1f} when it began, from other work. Each preset was killed when its first run had",
        "ended, and given again; the data of the mini problem were there. The goals, at most "
        f"{CPU_MINUTES:g} CPU minutes each and no run repeated: {'; '.join(faults) or 'met'}.",
        "",
        "| preset | runs | CPU minutes | left out |",
        "|---|---:|---:|---|",
    ]
    for result in results:
        minutes = "–" if result["cpu_minutes"] is None else f"{result['cpu_minutes']:.1f}"
        notes = "; ".join(note.removeprefix("left out: ") for note in result["notes"])
        lines.append(f"| `{result['preset']}` | {result['runs']} | {minutes} | {notes} |")
    lines += ["", "The laws, as they came out, or why there is none:", ""]
    for result in results:
        for fit in result["fits"]:
            label = f", {fit['line']}" if fit["line"] else ""
            lines.append(f"- `{result['preset']}`, {fit['title']}{label}: {describe_fit(fit)}")
    return "\n".join(lines) + "\n"


def describe_fit(fit: dict[str, Any]) -> str:
    """Return a law with its intervals, or why there is none."""
    if fit["problem"]:
        return str(fit["problem"])
    parameters = ", ".join(
        f"{name} {each['value']:.3g} ({each['interval'][0]:.3g} to {each['interval'][1]:.3g})"
        for name, each in fit["parameters"].items()
    )
    return f"{fit['formula']}; 95 % intervals: {parameters}"


def main() -> int:
    """Run the presets; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", choices=list(list_presets()), default=list(list_presets()))
    parser.add_argument("--work", type=Path, default=Path("runs/bench-studies"))
    add_keep_option(parser)
    arguments = parser.parse_args()
    about, work = machine.about(), arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    if not (work / DATA / "manifest.json").exists():
        command = [sys.executable, "-m", "cosmoflow.synthesize", DATA, "--preset", "mini2"]
        subprocess.run(command, cwd=work, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    results = []
    for preset in arguments.presets:
        results.append(run_preset(preset, work))
        last = results[-1]
        print(
            f"{preset}: {last['runs']} runs, {last['cpu_minutes'] or 0:.1f} CPU minutes", *find_faults(last), flush=True
        )
    print(write_page(results, about))
    if arguments.keep:
        keep_record("studies", {**about, "presets": results})
    return int(any(fault for result in results for fault in find_faults(result)))


if __name__ == "__main__":
    sys.exit(main())
