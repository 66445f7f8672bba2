"""The HTML report: its contents, its safety against hostile logs, its command, and the page in a real browser."""

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree
from urllib.parse import unquote

import pytest

from compliance.engine import Options, check_paths
from compliance.formats.words import aligned
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage
from submission.assemble.implementation import record_package
from submission.report import main
from submission.results.page import findings
from submission.results.page.findings import MAX_LINE, read_excerpt
from submission.results.page.glance import short_framework, short_model
from submission.results.page.page import write_report
from tests.submission.results.browser import browser, chromium

VOID = {"br", "col", "input", "link", "meta", "wbr"}
HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'&lt;\x1b[31m\x00\u202eevil"


class Page(HTMLParser):
    """What a page holds: its elements, ids, links, visible text, and tags that do not fit."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.source = path, path.read_text(encoding="utf-8")
        self.elements, self.attributes, self.problems = [], [], []
        self.text, self.blocks = "", {"style": "", "script": ""}
        self._open = []
        self.feed(self.source)
        self.close()
        self.problems += [f"<{tag}> stays open" for tag in self._open]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.attributes += attributes
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        if inside in self.blocks:
            self.blocks[inside] += data
        else:
            self.text += f"{data} "

    def all(self, name):
        """Return the values of an attribute."""
        return [value for key, value in self.attributes if key == name]


def page_of(folder, package=None, **options):
    """Write the page about a package beside it, check its form and return it."""
    if package is not None:
        package.write(folder / "Example_University")
    output = folder / "report.html"
    write_report(check_paths([folder / "Example_University"], Options(details=True, **options)), output)
    return checked_page(output)


def checked_page(path):
    """Return the page: nothing is left open, ids are unique, links lead somewhere, and nothing comes from elsewhere."""
    page = Page(path)
    assert page.problems == []
    ids = page.all("id")
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert {word for names in page.all("aria-labelledby") for word in names.split()} <= set(ids)
    for address in page.all("href"):
        if address.startswith("#"):
            assert address[1:] in ids
        else:
            assert address.startswith("."), address
            assert (page.path.parent / unquote(address.partition("#")[0])).exists(), address
    assert not page.all("src") and not page.all("style")
    assert "@import" not in page.source and "url(" not in page.source and "http" not in page.blocks["style"]
    assert not any(name.startswith("on") for name, _ in page.attributes)
    return page


def test_an_incomplete_mini_package(tmp_path):
    package = SamplePackage("oc20", variant="mini", runs=3, division="open")
    root = Path(package.write(tmp_path / "Example_University"))
    (root / "provenance.json").write_bytes(record_package(root))
    page = page_of(tmp_path, allow_mini=True)
    assert "INCOMPLETE" in page.text and "MINI" in page.text and "not MLPerf results" in page.text
    assert "3 of 5 runs" in page.text
    first = next(root.rglob("result_1.txt"))
    assert hashlib.sha256(first.read_bytes()).hexdigest()[:12] in page.text, "provenance"
    assert "host processor model name" in page.text, "the system description"


def before_the_results(page):
    """Return the text above the tables of results."""
    return re.split(r" (?:Find|Results\s+Time to train|Results\s+Throughput) ", page.text)[0]


def test_the_page_opens_with_the_best_results_and_what_failed(tmp_path):
    (tmp_path / "Example_University").mkdir()
    for name, package in {
        "Best": SamplePackage(),
        "Slower": SamplePackage(epochs=40),
        "Fast": SamplePackage(epochs=12),
        "Few": SamplePackage("deepcam", runs=3),
    }.items():
        package.write(tmp_path / "Example_University" / name)
    page = page_of(tmp_path)
    text = before_the_results(page)
    assert re.search(r"cosmoflow\s+closed\s+example_\s*n64\s+Best, 64 × .*\s86\.\d\d ", text)
    assert "Time to solution" in text and "Slower, 64" not in text and "FAIL Slower: closed" in " ".join(text.split())
    assert re.search(
        "FAIL .*Fast: closed cosmoflow on example_n64 .*RCP test failed .* RCP01",
        text,
    )
    assert re.search("INCOMPLETE .*Few: closed deepcam on example_n64 .*deepcam needs 5: 2 missing", text)
    causes = [address for address in page.all("href") if re.fullmatch(r"#result-\d+-(RCP|RUN)01", address)]
    assert len(causes) == 2 and "#what-failed" in page.all("href"), "checked_page has shown that they lead somewhere"


def test_errors_of_a_submission_and_a_round_without_errors_at_a_glance(tmp_path):
    page = page_of(tmp_path, SamplePackage(runs=10))
    assert "What failed" not in page.text and "#what-failed" not in page.all("href")
    page = page_of(tmp_path, SamplePackage(runs=10, epochs=12))
    assert "No result passes." in before_the_results(page)
    (tmp_path / "Example_University" / "systems").joinpath("other.json").write_text("{,}")
    page = page_of(tmp_path)
    assert "#submission-1-PKG04" in page.all("href") and page.all("id").count("submission-1-PKG04") == 1


def test_the_previous_round_at_a_glance(tmp_path, call):
    now = SamplePackage().edit_all(lambda log: log.stage("init_stop", 30 * 60_000)).write(tmp_path / "v3.0" / "Example")
    before = SamplePackage(round_="2.0", epochs=50).write(tmp_path / "v2.0" / "Other")
    output = tmp_path / "report.html"
    call(main, now, "--previous", before, "-o", output)
    text = before_the_results(Page(output))
    score, both, old, speedup = map(float, re.search(r"(\S+) 30.00 out\s+(\S+)\s+(\S+)\s+(\S+)×", text).groups())
    assert both == pytest.approx(score + 30, abs=0.02) and speedup == pytest.approx(old / both, abs=0.01)
    (tmp_path / "empty").mkdir()
    for folder, status, said in (
        (tmp_path / "empty", 1, "no results in"),
        ("nowhere", 2, "no such file or folder: nowhere"),
    ):
        assert said in call(main, now, "--previous", folder, "-o", output, "--force", status=status).err


def test_the_numbers_of_a_column_have_equal_decimals():
    assert aligned([3.79, 140.4, "–", None]) == ["3.79", "140.40", "–", ""]
    assert aligned([0.0851, 12.0]) == ["0.0851", "12.0000"] and aligned([0.68, 4.2126]) == ["0.680", "4.213"]
    assert aligned([5312.4, 0.0], least=0) == ["5,312", "0"] and aligned([]) == []


@pytest.mark.parametrize(
    ("shorten", "name", "short"),
    [
        (short_model, "NVIDIA A100-SXM4-40GB (400W)", "A100"),
        (short_model, "NVIDIA A100 - PCIe - 80 GB", "A100"),
        (short_model, "NVIDIA Quadro RTX 5000", "RTX 5000"),
        (short_model, "FUJITSU Processor A64FX", "A64FX"),
        (short_model, "Intel(R) Xeon(R) CPU E5-2620 v4 @ 2.10GHz", "Xeon E5-2620 v4"),
        (short_model, "NVIDIA", "NVIDIA"),
        (short_model, "", ""),
        (short_framework, "PyTorch NVIDIA Release 22.08", "PyTorch 22.08"),
        (short_framework, "tensorflow/2.1.0 py37_3dc74fe_3951.g96e0832", "TensorFlow 2.1.0"),
        (short_framework, "a framework that nobody knows", "a framewo...dy knows"),
    ],
)
def test_short_names(shorten, name, short):
    assert shorten(name) == short


def test_a_passing_package_has_no_labels(tmp_path):
    page = page_of(tmp_path, SamplePackage(runs=10))
    assert "INCOMPLETE" not in page.text and "MINI" not in page.text
    assert re.search(r"Of 10 runs the fastest \(result_\d+ with 8[67]\.", page.text)
    assert "The mean of the other 8 runs is 86." in page.text
    assert "reference 22.83 (limit 22.2)" in page.text and "target 0.124" in page.text
    classes = Counter(page.all("class"))
    assert classes["run kept"] == 8 and classes["run dropped"] == 2


def test_a_rejected_run_is_marked_and_explained(tmp_path):
    page = page_of(tmp_path, SamplePackage().edit(3, lambda log: log.last_evaluation(0.2)))
    classes = Counter(page.all("class"))
    assert classes["run failed"] == 1 and classes["run dropped"] == 1
    assert "One run is rejected (result_3); it counts as the slowest" in page.text
    assert "result_3.txt:148" in page.text and '"key": "eval_error", "value": 0.2' in page.text, "an excerpt"


def test_a_waiver_and_a_bypass_are_shown_with_their_reasons(tmp_path, call):
    package = SamplePackage(epochs=18).replace("package_checker_params", b"rcp_bypass").write(tmp_path / "Example")
    waivers, output = tmp_path / "waivers.yaml", tmp_path / "report.html"
    call(main, package, "-o", output)
    page = output.read_text()
    assert "bypass asked for" in page and "package_checker_params line 1: rcp_bypass" in page
    waivers.write_text("3.0/Example/example_n64/strong/cosmoflow: agreed on 1 May\n3.0/Exmple/x/weak/oc20: why\n")
    call(main, package, "-o", output, "--force", "--waivers", waivers)
    page = output.read_text()
    assert "waived: agreed on 1 May (converges too fast)" in page and "bypass asked for" not in page
    assert "this waiver names no result that was checked: 3.0/Exmple/x/weak/oc20" in page


def test_nothing_from_outside_acts_in_the_page(tmp_path):
    def poison(log):
        for key in ("submission_org", "submission_platform", "opt_name", "submission_status"):
            log.set(key, HOSTILE)
        log.add(HOSTILE, HOSTILE).meta("run_stop", "status", HOSTILE)

    package = SamplePackage().edit_all(poison)
    package.system(system_name=HOSTILE, framework=HOSTILE, division=HOSTILE, **{HOSTILE: HOSTILE})
    package.file("result_<img src=x>.txt", HOSTILE)
    root = Path(package.write(tmp_path / "Example_University"))
    provenance = json.loads(record_package(root))
    provenance["logs"][HOSTILE] = {**next(iter(provenance["logs"].values())), "seed": HOSTILE}
    provenance |= {"incomplete": {HOSTILE: HOSTILE}, "configurations": {HOSTILE: {HOSTILE: [HOSTILE]}}}
    (root / "provenance.json").write_text(json.dumps(provenance))
    page = page_of(tmp_path)
    names = Counter(tag for tag, _ in page.elements)
    assert names["img"] == 0 and names["script"] == 1 and names["style"] == 1
    assert "alert(1)" in page.text, "it is shown, as text"
    assert all(sign.isprintable() or sign == "\n" for sign in page.source)
    policy = next(dict(found)["content"] for tag, found in page.elements if "Policy" in str(found))
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.blocks[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: log.drop("run_stop"),
        lambda log: log.drop("eval_error"),
        lambda log: log.drop("run_start").drop("epoch_start"),
        lambda log: log.times(lambda time_ms: -time_ms),
        lambda log: log.meta("eval_error", "epoch_num", 1e308).meta("eval_error", "epoch_num", -1e308, 2),
        lambda log: log.evaluation(1, 1e308).evaluation(2, -5).evaluation(3, float("nan")).evaluation(4, "x"),
        lambda log: log.field("run_stop", "time_ms", 1e300),
        lambda log: log.set("global_batch_size", [1, {"a": None}]),
        lambda log: log.drop("submission_benchmark"),
        lambda log: log.times(lambda time_ms: 0),
    ],
)
def test_damaged_logs_are_shown_as_far_as_possible(damage, tmp_path):
    page = page_of(tmp_path, SamplePackage().edit_all(damage, 3))
    drawn = " ".join(value for name in ("points", "x", "y", "x1", "y1", "cx", "cy", "d") for value in page.all(name))
    assert drawn and not re.search("nan|inf|e[+-]?[0-9]", drawn)
    assert all(-30 <= float(number) <= 3000 for number in re.findall(r"-?\d+\.?\d*", drawn))


def test_logs_without_a_package(tmp_path):
    for number in range(2):
        (tmp_path / f"a{number}.txt").write_bytes(SampleLog("oc20", run=number).bytes())
    (tmp_path / "other.txt").write_bytes(SampleLog("deepcam").bytes())
    assert main([*map(str, sorted(tmp_path.glob("*.txt"))), "-o", str(tmp_path / "new" / "report.html")]) == 0
    page = checked_page(tmp_path / "new" / "report.html")
    assert page.all("class").count("run kept") == 3 and page.all("class").count("result") == 2
    assert "3.0, assumed: the newest; --round sets it" in page.text


def test_a_large_page_becomes_several(tmp_path, monkeypatch):
    package = SamplePackage(runs=10).copy_to("other_n64").copy_to("third_n64").copy_to("fourth_n64")
    whole = page_of(tmp_path, package)
    monkeypatch.setattr(findings, "MOST_CHARACTERS", 60_000)
    mine = tmp_path / "report-9.html"
    mine.write_text("mine")
    main_page = page_of(tmp_path)
    others = [checked_page(path) for path in sorted(tmp_path.glob("report-[0-8].html"))]
    assert len(others) > 1
    assert sum(page.all("class").count("result") for page in others) == whole.all("class").count("result") == 4
    for address in filter(re.compile(r".*#result-\d+").fullmatch, main_page.all("href")):
        name, _, section = address.partition("#")
        assert section in next(page for page in others if f"./{page.path.name}" == name).all("id")
    monkeypatch.undo()
    page_of(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["report-9.html", "report.html"], "ours are removed"
    (tmp_path / "report-2.html").write_bytes(main_page.path.read_bytes())
    page_of(tmp_path)
    assert (tmp_path / "report-2.html").exists(), "a page of its own"
    monkeypatch.setattr(findings, "MOST_CHARACTERS", 60_000)
    with pytest.raises(FileExistsError, match=r"report-2\.html exists and is not a page beside report\.html"):
        page_of(tmp_path)


def test_equal_input_gives_equal_bytes(tmp_path):
    assert page_of(tmp_path, SamplePackage()).source == page_of(tmp_path).source


def test_the_command_never_overwrites_other_files(tmp_path, call):
    package = SamplePackage(runs=10).write(tmp_path / "Example")
    other = tmp_path / "notes.html"
    other.write_text("<p>mine</p>")
    (tmp_path / "empty").mkdir()
    (tmp_path / "slurm-1.out").write_text("step 1\n")
    (tmp_path / "result_0.txt").touch()
    output = tmp_path / "report.html"
    for arguments, status, word in (
        ([tmp_path / "slurm-1.out", "-o", output], 1, "Give the log beside it, "),
        ([tmp_path / "nowhere", "-o", output], 2, "no such file"),
        ([package, "-o", tmp_path], 2, "is a folder"),
        ([package, "-o", other], 2, "--force"),
        ([package, "-o", other, "--force"], 1, "not a page of this command"),
        ([tmp_path / "empty", "-o", output], 1, "no results"),
        ([other, "-o", output], 1, "none of 1 log can be read"),
        ([package, "-o", other / "report.html"], 1, "otes.html"),
    ):
        assert word in call(main, *arguments, status=status).err
    assert other.read_text() == "<p>mine</p>" and not output.exists()
    call(main, package, "-o", output)
    call(main, package, "-o", output, status=2)  # twice only with --force
    call(main, package, "-o", output, "--force", "--title", "Our <round>")
    assert "Our &lt;round&gt;" in output.read_text()
    assert "nothing to write" in call(main, package, status=2).err


@pytest.mark.parametrize("write", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_excerpt_counts_lines_like_the_checker(write, tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(write(b"1\r\n2\r3\n" + b"x" * 200_000 + b"\n5 \xff\n6"))
    assert [number for number, _ in read_excerpt(str(path), 4)] == [2, 3, 4, 5, 6]
    texts = dict(read_excerpt(str(path), 5))
    assert texts[3] == "3" and len(texts[4]) == MAX_LINE + 2 and texts[5] == "5 �" and texts[6] == "6"
    assert (
        read_excerpt(str(path), 0)
        == read_excerpt(str(path), 99)
        == read_excerpt(str(tmp_path), 3)
        == read_excerpt("-", 1)
        == []
    )


def test_an_excerpt_of_a_damaged_archive_is_empty(tmp_path):
    path = tmp_path / "log.txt.gz"
    path.write_bytes(gzip.compress(b"line\n" * 100_000)[:40])
    assert read_excerpt(str(path), 90_000) == []


# -- in a browser ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """Open a browser's tab that the tests of this file share."""
    if chromium() is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def round_page(tmp_path_factory):
    """Return a page with three results, one of them throughput."""
    folder = tmp_path_factory.mktemp("round")
    SamplePackage("deepcam").copy_to(f"a_{SYSTEM}").write(folder / "Second")
    SamplePackage("oc20").edit(1, lambda log: log.last_evaluation(0.5)).write(folder / "First")
    SamplePackage("cosmoflow", scaling="weak").start_together().write(folder / "Third")
    output = folder / "report.html"
    write_report(check_paths([folder], Options(details=True)), output)
    return output.as_uri()


ROWS = "[...document.querySelectorAll('table.results tbody tr')].filter(row => row.checkVisibility())"
BENCHMARKS = f"{ROWS}.map(row => row.cells[1].textContent.trim())"


def press(tab, heading):
    tab.value(f"[...document.querySelectorAll('thead button')].find(b => b.textContent == {heading!r}).click()")


def test_sorting_and_filter_work(tab, round_page):
    tab.problems.clear()
    tab.open(round_page)
    assert tab.value(BENCHMARKS) == ["deepcam", "deepcam", "oc20", "cosmoflow"]
    for expected in (["deepcam", "deepcam", "oc20"], ["oc20", "deepcam", "deepcam"]):
        press(tab, "Benchmark")
        assert tab.value(BENCHMARKS)[:3] == expected
    assert tab.value("document.querySelector('th[aria-sort=descending]').textContent") == "Benchmark"
    press(tab, "TTT min")
    times = tab.value(f"{ROWS}.slice(0, 3).map(row => parseFloat(row.cells[7].textContent))")
    assert times == sorted(times) and len(set(times)) > 1
    change = "document.querySelector('select[name=benchmark]').value = 'oc20'; filter.dispatchEvent(new Event('input'))"
    tab.value(change)
    assert tab.value(BENCHMARKS) == ["oc20"]
    assert tab.value("document.querySelector('output').textContent") == "1 of 4 results"
    sections = "[...document.querySelectorAll('details.result')].filter(part => part.checkVisibility()).length"
    assert tab.value(sections) == 1
    away = "new Set([...document.querySelectorAll('svg .away')].map(mark => mark.dataset.result))"
    assert tab.value(f"{away}.size") == 3 and not tab.value(f"[...{away}].some(name => name.endsWith('oc20'))")
    assert tab.value("location.search") == "?sort1=up+TTT+min&benchmark=oc20"
    address = tab.value("location.href")
    for target in ("about:blank", address):
        tab.open(target)
    assert tab.value(BENCHMARKS) == ["oc20"], "the address has the filter"
    assert tab.value("document.querySelector('th[aria-sort=ascending]').textContent") == "TTT min"
    tab.open(f"{round_page}?benchmark=nonsense")
    assert tab.value(f"{ROWS}.length") == 4, "an unknown choice is none"
    tab.value("filter.elements.text.value = 'nonsense'; filter.dispatchEvent(new Event('input'))")
    assert tab.value("document.querySelector('output').textContent") == "no result matches"
    tab.value("filter.reset(); filter.dispatchEvent(new Event('input'))")
    assert "benchmark" not in tab.value("location.search")
    assert tab.value(f"{ROWS}.length") == 4 and tab.value(sections) == 4
    assert tab.problems == []


def test_the_same_runs_in_two_rounds_are_away_when_both_are(tab, tmp_path):
    SamplePackage(round_="2.0").write(tmp_path / "v2.0" / "Example")
    copytree(tmp_path / "v2.0", tmp_path / "v3.0")
    output = tmp_path / "report.html"
    write_report(check_paths([tmp_path], Options(details=True)), output)
    tab.open(output.as_uri())
    away = "document.querySelectorAll('svg .away').length"
    shared = "[...document.querySelectorAll('svg .away')].filter(part => part.dataset.result.includes('\\n')).length"
    assert len(tab.value("document.querySelector('svg.wide .mark').dataset.result").split("\n")) == 2
    assert tab.value(away) == 0
    choose = "document.querySelector('{}').value = '{}'; filter.dispatchEvent(new Event('input'))"
    tab.value(choose.format("select[name=round]", "3.0"))
    assert tab.value(away) > 0 and tab.value(shared) == 0
    tab.value(choose.format("input[name=text]", "none such"))
    assert tab.value(shared) > 0


def test_a_link_opens_a_card_and_a_point_shows_its_hint(tab, round_page):
    tab.problems.clear()
    tab.open(round_page)
    closed = "document.querySelectorAll('details.result:not([open])').length"
    assert tab.value(closed) == 4
    tab.value("document.querySelector('table.results a').click()")
    tab.wait_until(f"{closed} == 3")
    hint = "document.querySelector('.card').checkVisibility() && document.querySelector('.card').textContent"
    point = "document.querySelector('svg.wide .mark')"
    tab.value(f"{point}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    assert " min (mean of " in tab.value(hint)
    assert tab.value(f"{point}.querySelector('title')") is None, "no second card"
    press_key = (
        "document.querySelector('.canvas:has(.wide)').dispatchEvent(new KeyboardEvent('keydown', {{key: '{}'}}))"
    )
    tab.value(press_key.format("Escape"))
    assert tab.value(hint) is False
    for _ in range(2):
        tab.value(press_key.format("ArrowRight"))
    assert tab.value(hint)
    assert tab.problems == []


def test_a_table_is_copied_as_csv(tab, round_page):
    tab.open(round_page)
    tab.value("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.value("document.querySelector('#results .copy').click()")
    head, first, *_ = tab.value("window.copied").split("\r\n")
    assert head.startswith("Verdict,Benchmark,Division,Organisation,System,Units,Batch size,TTT min,")
    assert first.split(",")[:4] == ["PASS", "deepcam", "closed", "Second"]
    assert head.split(",")[-1] == "Runs" and first.split(",")[-1] == "5"
    tab.value("document.querySelector('#results tbody tr').cells[3].textContent = '=1+1'")
    tab.value("document.querySelector('#results .copy').click()")
    assert tab.value("window.copied").split("\r\n")[1].split(",")[3] == "'=1+1", "no formula"


def test_the_switch_between_light_and_dark_works(tab, round_page):
    tab.open(round_page)
    colors = []
    for theme in ("light", "dark"):
        tab.value(f"document.getElementById('theme-{theme}').click()")
        colors.append(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]
    tab.value("document.getElementById('theme-auto').click()")


def test_nothing_is_wider_than_a_phone(tab, round_page):
    tab.open(round_page)
    tab.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    assert tab.value("document.documentElement.scrollWidth") <= 390
    tab.call("Emulation.clearDeviceMetricsOverride")


def test_a_hostile_page_does_nothing(tab, tmp_path):
    package = SamplePackage().edit(1, lambda log: log.set("opt_name", HOSTILE)).system(framework=HOSTILE)
    page = page_of(tmp_path, package)
    tab.problems.clear()
    tab.open(page.path.as_uri())
    assert tab.value("document.images.length") == 0 and tab.value("document.scripts.length") == 1
    assert tab.problems == []
