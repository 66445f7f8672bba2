"""Further logs on which the rules about one log prove themselves: (rule, severities of its findings, log)."""

import zlib

from common.ending import COMPLETED
from common.reference import FULL, MINI, MINI_2, NO_TARGET, OWN, TARGET_RECORD
from common.version import DISTRIBUTION, VERSION
from compliance.logs.run import BAGGING, INIT_WEIGHTS, PROVENANCE
from compliance.rules.closed import PARAMETERS, WRITERS
from compliance.rules.evidence import MINI_DATA
from compliance.rules.order import YEAR_MS
from compliance.rules.settings import KEY

EMPTY_MEMBER = zlib.compressobj(wbits=31).flush()


def evaluate_again(log, epoch, value, later_ms=0):
    """Add another evaluation of an epoch (from 1), so much after its result; return the log."""
    result_ms = log.records_of(log.reference.target.key)[epoch - 1]["time_ms"]
    log.times(lambda time_ms: time_ms + later_ms if time_ms > result_ms else time_ms)
    for key, result in (("eval_start", None), ("eval_stop", None), (log.reference.target.key, value)):
        log.add(key, result, "epoch_start", epoch, epoch_num=epoch)
    return log


def rename(log, key, name):
    """Give all records of a key another one; return the log."""
    for record in log.records_of(key):
        record["key"] = name
    return log


MADE_UP = 0.1134567890123457

EXAMPLES = (
    ("AMT01", "", lambda log: log(benchmark="deepcam").steps().meta("epoch_stop", "step_num", None)),
    (
        "AMT01",
        "",
        lambda log: log(benchmark="oc20", division="open").steps(3_908).add("gradient_accumulation_steps", 2),
    ),
    (
        "AMT01",
        "",
        lambda log: log().by_suite({"train.target": NO_TARGET}).throughput().meta("tracked_stats", "step", 9, -1),
    ),
    ("AMT01", "error", lambda log: log(benchmark="deepcam").steps().set("global_batch_size", 512)),
    ("AMT01", "error", lambda log: log(benchmark="deepcam").steps(59).meta("epoch_stop", "step_num", None)),
    ("AMT01", "error", lambda log: log(benchmark="deepcam").steps(59).meta("epoch_start", "step_num", None, 0)),
    ("AMT01", "error", lambda log: log(benchmark="deepcam").steps(59).add("run_resumed", False)),
    ("AMT01", "error", lambda log: log().steps(512).add("gradient_accumulation_steps", 8)),
    ("AMT01", "error", lambda log: log(division="open").by_suite().throughput(step=128)),
    (
        "AMT01",
        "error",
        lambda log: (
            log(division="open").by_suite({"train.steps": 3000}).throughput().meta("tracked_stats", "step", 9, -1)
        ),
    ),
    ("AMT03", "warning", lambda log: log(epochs=2).blocks().meta("block_start", "epoch_count", 50, 1)),
    (
        "AMT03",
        "warning",
        lambda log: log(epochs=3).blocks().meta("block_start", "epoch_count", 5, -1).drop("block_stop", -1),
    ),
    ("ORD19", "", lambda log: log().throughput()),
    ("ORD19", "note", lambda log: log(benchmark="deepcam").throughput(1e9)),
    ("ORD19", "note", lambda log: log(benchmark="oc20").by_suite().throughput(1e9)),
    ("AMT05", "", lambda log: log().add("number_of_ranks", 16)),  # one for each node
    ("AMT05", "", lambda log: log(benchmark="oc20").add("number_of_ranks", 1)),
    ("AMT05", "", lambda log: log(benchmark="openfold").set("accelerators_per_node", 0).add("number_of_ranks", 2080)),
    ("AMT05", "warning", lambda log: log(benchmark="deepcam").add("number_of_ranks", 1)),
    ("AMT05", "note", lambda log: log(benchmark="deepcam").add("number_of_ranks", 48)),
    ("AMT05", "warning", lambda log: log(benchmark="oc20").by_suite().add("number_of_ranks", 1)),
    ("SET11", "", lambda log: log(division="open").by_suite({"model.conv_size": 4})),
    ("SET11", "error", lambda log: log().by_suite({"data.augment": "symmetries", "train.target": 0.6})),
    ("SET11", "error", lambda log: log().by_suite({"submission.division": "open"})),
    ("SET11", "error", lambda log: log(benchmark="deepcam").by_suite({"optim.name": "adam"})),
    ("SET11", "error", lambda log: log(benchmark="oc20").by_suite({"schedule.base_lr": 0.01})),
    ("SET11", "error", lambda log: log().by_suite({"train.seed": 7})),
    ("SET11", "warning", lambda log: log().by_suite({"submission.round": "2.0"})),
    ("SET11", "error", lambda log: log().by_suite({"train.epochs": 5})),
    ("SET12", "error", lambda log: log().by_suite().move(PROVENANCE, after="run_stop")),
    ("SET12", "error", lambda log: log().by_suite().drop(PARAMETERS)),
    ("SET12", "error", lambda log: log().by_suite().set(PROVENANCE, {"versions": {DISTRIBUTION: VERSION}})),
    ("SET12", "error", lambda log: log().by_suite().set(PROVENANCE, "edited")),
    ("SET12", "error", lambda log: log().by_suite(version="0.1.0").drop(PARAMETERS)),
    ("SET12", "warning", lambda log: log().by_suite({"model.new_key": 1})),
    ("SET12", "error", lambda log: log().meta("run_start", "file", f".{WRITERS[0]}")),
    ("SET12", "error", lambda log: log().by_suite({"model.conv_size": ...}, "9.0.0")),
    ("SET12", "note", lambda log: log().by_suite().provenance(git_revision="1" * 40 + "-dirty")),
    ("SET12", "error", lambda log: log(benchmark="deepcam").by_suite().set(PARAMETERS, 2_051_224)),
    ("SET12", "error", lambda log: log(benchmark="oc20").by_suite().set(PARAMETERS, "1810182")),
    (
        "SET19",
        "note",
        lambda log: (
            log(division="open")
            .by_suite()
            .provenance(own_code=[{"kind": "problem", "name": "Mine", "file": "mine.py"}])
        ),
    ),
    ("SET19", "note", lambda log: log(division="open").by_suite().provenance(own_code="unreadable")),
    ("SET15", "error", lambda log: log(division="open").by_suite({"instances.bagging": "poisson"})),
    ("SET15", "error", lambda log: log(division="open").add(BAGGING, "bootstrap")),
    ("SET15", "error", lambda log: log(division="open", variant=MINI).add(BAGGING, "bootstrap")),
    ("SET15", "error", lambda log: log(benchmark="oc20", division="open").by_suite({"train.init_from": "runs/before"})),
    ("SET15", "error", lambda log: log(division="open").add(INIT_WEIGHTS, "5" * 64)),
    ("SET15", "error", lambda log: log(benchmark="deepcam", division="open", variant=MINI).add(INIT_WEIGHTS, "5" * 64)),
    (
        "ORD06",
        "error",
        lambda log: log().add("block_start", None, before="run_stop", first_epoch_num=24, epoch_count=16),
    ),
    ("ORD06", "error", lambda log: log().blocks().meta("block_start", "epoch_count", 0)),
    ("ORD06", "error", lambda log: log().blocks().meta("block_start", "first_epoch_num", None)),
    ("ORD06", "error", lambda log: log().blocks().meta("block_stop", "first_epoch_num", None)),
    ("ORD06", "error", lambda log: log().blocks().move("block_start", before="run_start")),
    ("ORD06", "error", lambda log: log().blocks().move("run_start", after="block_stop")),
    ("ORD07", "error", lambda log: log().drop("epoch_stop")),
    ("ORD07", "error", lambda log: log().drop("eval_start")),
    ("ORD07", "error", lambda log: log().drop("eval_stop")),
    ("ORD07", "error", lambda log: log().meta("epoch_start", "epoch_num", None)),
    ("ORD07", "error", lambda log: log().meta("eval_stop", "epoch_num", "3")),
    ("ORD11", "", lambda log: log().double("epoch_start", 2).double("eval_start", 3)),  # logged by two ranks
    ("ORD11", "error", lambda log: log().numbers(lambda number: {3: 4, 4: 3}.get(number, number))),
    ("ORD11", "error", lambda log: log().meta("epoch_start", "epoch_num", 3, 3)),
    ("ORD11", "note", lambda log: log().double("epoch_start", -1).shift("epoch_start", 60_000)),
    ("ORD12", "", lambda log: log().move("epoch_stop", after="eval_error")),  # evaluation may overlap the next epoch
    ("ORD12", "", lambda log: log().double("epoch_start", 2).double("eval_start", 3)),  # logged by two ranks
    ("ORD12", "error", lambda log: log().drop("eval_stop", 2)),
    ("ORD12", "error", lambda log: log().drop("epoch_start", 2)),
    ("ORD12", "error", lambda log: log(epochs=20).drop("epoch_stop", -1).drop("epoch_stop", -1).drop("epoch_stop", -1)),
    ("ORD04", "error", lambda log: log().move("init_stop", after="eval_error").move("run_start", after="init_stop")),
    ("ORD04", "note", lambda log: log().move("run_start", after="epoch_start")),
    ("ORD04", "error", lambda log: log(benchmark="openfold").move("run_start", after="eval_accuracy")),
    ("ORD11", "", lambda log: log().blocks()),
    ("ORD11", "note", lambda log: log().renumber(first=0)),
    ("ORD11", "error", lambda log: log().renumber(first=14)),
    ("ORD11", "error", lambda log: log(benchmark="openfold").numbers(lambda number: 2 * number)),
    ("ORD11", "error", lambda log: log().renumber(first=-5)),
    ("ORD11", "error", lambda log: log().renumber(first=2).blocks()),
    ("ORD11", "error", lambda log: log().numbers(lambda number: number / 2)),
    ("ORD11", "error", lambda log: log(benchmark="openfold").numbers(lambda number: number + 40 * 256)),
    ("ORD11", "error", lambda log: log(benchmark="openfold").drop_epoch(4 * 40 * 256)),
    (
        "ORD11",
        "error",
        lambda log: log(benchmark="openfold").numbers(lambda n: n if n > 40_960 or n < 30_720 else 71_680 - n),
    ),
    ("ORD12", "", lambda log: log(epochs=23).meta("run_stop", "epoch", 22)),
    ("ORD12", "", lambda log: log(epochs=23).meta("run_stop", "epoch_num", 23)),
    ("ORD12", "warning", lambda log: log(epochs=23).meta("run_stop", "epoch_num", 30)),
    ("ORD12", "warning", lambda log: log(epochs=23).meta("run_stop", "epoch", 12)),
    (
        "ORD11",
        "",
        lambda log: log().add("eval_start", None, before="epoch_start", epoch_num=0),
    ),  # of the initial network
    ("ORD11", "note", lambda log: log().renumber(first=0).add("eval_start", None, before="epoch_start", epoch_num=-1)),
    ("ORD11", "error", lambda log: log().drop("epoch_start", 3)),
    ("ORD11", "", lambda log: log().blocks()),
    ("ORD11", "error", lambda log: log().numbers(lambda number: number + 13, "eval_start", "eval_stop", "eval_error")),
    ("ORD11", "error", lambda log: log().move("eval_start", before="epoch_start")),
    ("ORD11", "error", lambda log: log().meta("eval_start", "epoch_num", 99, -1)),
    ("ORD11", "error", lambda log: log().blocks().meta("eval_start", "epoch_num", 99, -1)),
    ("QUA06", "warning", lambda log: evaluate_again(log(), 5, 0.13).drop("eval_error", 5)),
    ("QUA06", "warning", lambda log: evaluate_again(evaluate_again(log(), 5, 0.13), 5, 0.14).drop("eval_error", 5)),
    ("QUA08", "note", lambda log: log().add_evaluation(0.2, after="run_start")),
    ("QUA08", "", lambda log: log().blocks().drop("eval_start").drop("eval_stop")),
    ("QUA08", "", lambda log: log().double("eval_error", 3)),  # logged by two ranks
    ("QUA08", "", lambda log: log(benchmark="deepcam").steps()),
    ("QUA08", "note", lambda log: log().add_evaluation(0.2, after="run_stop")),
    ("QUA08", "error", lambda log: log().double("eval_error", 4, 0.13)),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().meta("eval_accuracy", "step_num", 5000, -1)),
    ("QUA08", "", lambda log: log().drop("eval_start")),  # ORD07 says so
    ("QUA08", "error", lambda log: log().numbers(lambda number: number + 13, "eval_error")),
    ("QUA08", "error", lambda log: log().drop("eval_start", -1).drop("eval_stop", -1)),
    ("QUA08", "error", lambda log: log().move("eval_error", after="epoch_start")),
    (
        "QUA08",
        "error",
        lambda log: log().blocks().drop("eval_start").drop("eval_stop").meta("eval_error", "epoch_num", 99, -1),
    ),
    ("QUA08", "", lambda log: log().evaluation(4, 0.2).double("eval_error", 3, 0.2 * (1 + 1e-7))),
    ("QUA08", "", lambda log: evaluate_again(log(), 5, 0.13, 60_000).meta("eval_error", "step_num", 80, 4)),
    ("QUA08", "", lambda log: evaluate_again(log(round_="0.7"), 5, 0.13, 60_000)),
    ("QUA08", "error", lambda log: log().last_evaluation(0.124).double("eval_error", -1, 0.124 * (1 + 1e-8))),
    ("QUA08", "error", lambda log: log(round_="0.7").double("eval_error", 4, 0.13)),
    ("QUA08", "error", lambda log: evaluate_again(log(), 5, 0.13)),
    ("QUA08", "error", lambda log: evaluate_again(log(round_="0.7"), 5, 0.13)),
    ("QUA08", "error", lambda log: evaluate_again(log(), 5, 0.13).meta("eval_error", "step_num", 80, 4)),
    ("QUA08", "error", lambda log: evaluate_again(log(benchmark="deepcam"), 5, 0.7).steps()),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().double("eval_accuracy", 4, 0.7)),
    ("QUA08", "", lambda log: log().steps()),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().meta("eval_accuracy", "step_num", 120, 2)),
    (
        "AMT01",
        "error",
        lambda log: log(benchmark="deepcam", epochs=12).steps().drop_epoch(7).numbers(lambda n: n - (n > 7)),
    ),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().meta("epoch_stop", "step_num", 900, 4)),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().meta("epoch_stop", "step_num", 430, 4)),
    ("QUA08", "error", lambda log: log(benchmark="deepcam").steps().meta("eval_accuracy", "step_num", 800, -1)),
    ("SET17", "warning", lambda log: log().by_suite().provenance(host={"cpu": "AMD EPYC", "cores": 2})),
    ("SET17", "error", lambda log: log().by_suite().provenance(data_sha256=next(iter(MINI_DATA)))),
    ("SET17", "warning", lambda log: log(division="open").by_suite().versions(torch="2.13.0+cpu")),
    ("SET17", "warning", lambda log: log().by_suite({"dist.device": "cpu"})),
    ("SET17", "warning", lambda log: log().by_suite({"data.data_dir": "data/cosmoflow-mini"})),
    ("SET17", "warning", lambda log: log().by_suite({"instances.count": 8})),
    ("SET15", "", lambda log: log(benchmark="deepcam").add("target_accuracy_reached", 0.82, before="run_stop")),
    ("SET15", "", lambda log: log(benchmark="deepcam").add("checkpoint", None).add("data_oversampling_factor", 2)),
    ("SET15", "warning", lambda log: log(benchmark="deepcam").add("checkpoint", "/scratch/best_model.pt")),
    ("SET15", "warning", lambda log: log(benchmark="deepcam").add("data_oversampling_factor", 0.1)),
    ("SET15", "warning", lambda log: log(benchmark="deepcam").add("target_accuracy_reached", 0.7, before="run_stop")),
    ("QUA03", "error", lambda log: log().field("run_stop", "metadata", {"status": "success", "ended": "failed"})),
    *(
        ("FRM04", "error", lambda log, metadata=metadata: log().field("run_stop", "metadata", metadata))
        for metadata in (None, True, 3, "status", ["status"])
    ),
    *(
        (
            "SET15",
            severity,
            lambda log, division=division, key=key, value=value: log(benchmark="deepcam", division=division).set(
                key, value
            ),
        )
        for division, severity, key, values in (
            ("closed", "", "checkpoint", ("", "None", "null", " ", False, True, 0)),
            ("closed", "", "data_oversampling_factor", (1, "all")),
            ("closed", "", "target_accuracy_reached", (8, True)),
            ("closed", "warning", "data_oversampling_factor", ("0.1",)),
            ("closed", "warning", "target_accuracy_reached", (0.9, "0.7")),
            ("open", "", "checkpoint", ("/scratch/best_model.pt",)),
            ("open", "", "data_oversampling_factor", (0.1,)),
            ("open", "", "target_accuracy_reached", (0.7,)),
        )
        for value in values
    ),
    ("FRM02", "error", lambda log: log().text().encode("utf-16-le")),
    ("FRM03", "error", lambda log: b"epoch 1 loss 0.3\n"),
    ("FRM03", "error", lambda log: b"PK\3\4" + log().bytes()),
    ("FRM03", "error", lambda log: b"<html><body>\n" + log().text().replace('"', "&quot;").encode()),
    ("FRM03", "error", lambda log: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    ("FRM03", "error", lambda log: b'{"division": "closed", "system_name": "example_n64"}'),
    ("FRM12", "", lambda log: log().add("train_loss", 0.5, before="run_stop")),
    ("FRM12", "note", lambda log: log().add("train_loss", 0.5, before="run_stop").shift("run_stop", -60_000)),
    ("FRM12", "", lambda log: log().raw("seed", lambda line: b"std:::move(x) {\n:::MLPv0.5.0 cosmoflow\n" + line)),
    (
        "FRM12",
        "note",
        lambda log: log().raw("epoch_stop", lambda line: line.replace(b"INTERVAL_END", b"INTERVAL_START")),
    ),
    ("FRM12", "note", lambda log: log().raw("epoch_stop", lambda line: line.replace(b', "event', b'.5, "event'))),
    ("FRM12", "note", lambda log: log().raw("seed", lambda line: line.replace(b" ", b"", 1) + b"\n" + line)),
    ("FRM12", "note", lambda log: log().raw("seed", lambda line: line.replace(b" ", b"\t", 1) + b"\n" + line)),
    (
        "FRM12",
        "note",
        lambda log: log().raw("seed", lambda line: line.replace(b":::MLLOG", b":::mllog") + b"\n" + line),
    ),
    ("FRM12", "note", lambda log: log().raw("seed", lambda line: line.replace(b":", b"", 1) + b"\n" + line)),
    (
        "FRM12",
        "note",
        lambda log: log().raw("seed", lambda line: line.replace(b"M", "\uff2d".encode(), 1) + b"\n" + line),
    ),
    (
        "FRM12",
        "note",
        lambda log: log().raw("seed", lambda line: line.replace(b"M", "M\u200b".encode(), 1) + b"\n" + line),
    ),
    ("FRM14", "", lambda log: log().raw("run_start", lambda line: b"batch_size: 1\nglobal_batch_size=512\n" + line)),
    ("FRM14", "warning", lambda log: log().raw("run_start", lambda line: b"global_batch_size=96\n" + line)),
    ("FRM14", "note", lambda log: log().raw("run_start", lambda line: b"Loading model from ./old.ckpt\n" + line)),
    ("FRM14", "", lambda log: log().raw("run_start", lambda line: b"Loading data from ./old.npz\n" + line)),
    ("FRM14", "warning", lambda log: log().raw("run_stop", lambda line: b"9/9 - 5000s - loss: 0.2\n" + line)),
    ("FRM14", "", lambda log: log().raw("run_stop", lambda line: b"9/9 - 9s - loss: 0.2\n" + line)),
    ("FRM04", "error", lambda log: log().raw("run_stop", lambda line: line[:60] + b"\n" + line[60:])),
    ("FRM04", "error", lambda log: log().raw("eval_error", lambda line: line.replace(b"time_ms", b"time"))),
    ("FRM04", "error", lambda log: log().raw("seed", lambda line: b":::MLLOG [1, 2]")),
    ("FRM04", "error", lambda log: log().raw("seed", lambda line: b":::MLLOG " + b"[" * 3000 + b"]" * 3000)),
    ("FRM04", "error", lambda log: log().field("seed", "time_ms", None)),
    ("FRM04", "error", lambda log: log().field("seed", "metadata", None)),
    ("FRM04", "error", lambda log: log().raw("run_stop", lambda line: b"\x1b[32m" + line + b"\x1b[0m")),
    ("FRM05", "", lambda log: log().set("submission_platform", "a:b")),
    (
        "FRM05",
        "error",
        lambda log: log().raw("eval_error", lambda line: line.replace(b'"value": ', b'"value": 1, "value": ')),
    ),
    (
        "FRM05",
        "error",
        lambda log: log().raw("run_stop", lambda line: line.replace(b'"value": ', b'"key": "notice", "value": ')),
    ),
    (
        "FRM05",
        "error",
        lambda log: log().raw("seed", lambda line: line + b"\n" + line.replace(b'"seed"', b'"a", "key": "b"')),
    ),
    ("FRM07", "", lambda log: log().meta("seed", "comment", "x" * (1 << 20))),
    ("FRM07", "error", lambda log: log().meta("seed", "comment", "x" * (1 << 22))),
    ("FRM08", "error", lambda log: log().field("run_stop", "time_ms", -1)),
    ("FRM08", "error", lambda log: log().field("run_stop", "time_ms", "1690000000000")),
    ("FRM08", "error", lambda log: log().field("run_stop", "time_ms", False)),
    ("FRM08", "error", lambda log: log().shift("run_stop", -1_692_300_000_000)),
    ("FRM09", "", lambda log: log().raw("seed", lambda line: b"epoch\n" * 100_000 + line).gzip()),
    ("FRM09", "error", lambda log: log().gzip() + EMPTY_MEMBER * 20_000),
    ("FRM10", "", lambda log: log().double("init_start").double("cache_clear")),
    ("FRM10", "error", lambda log: log().bytes()[:9000]),
    ("FRM10", "error", lambda log: log().bytes() * 2),
    ("FRM10", "error", lambda log: log().twice()),
    ("FRM10", "error", lambda log: log().times(lambda time_ms: time_ms // 1000)),
    ("FRM10", "error", lambda log: log().times(lambda time_ms: time_ms * 1000)),
    ("FRM10", "error", lambda log: log().times(lambda time_ms: round(time_ms, -7))),
    ("FRM10", "error", lambda log: log().times(lambda time_ms: 1.6e12)),
    ("FRM10", "", lambda log: log().times(lambda time_ms: round(time_ms, -3))),
    ("ORD01", "error", lambda log: log().drop("init_stop")),
    ("ORD01", "error", lambda log: log().move("init_start", after="init_stop")),
    ("ORD01", "error", lambda log: log().move("init_stop", after="run_start")),
    ("ORD01", "error", lambda log: log().shift("init_start", -31 * 60_000)),
    ("ORD02", "", lambda log: log().by_suite(version="0.2.0").set("cache_clear", False)),
    ("ORD02", "", lambda log: log().set("cache_clear", True)),
    ("ORD02", "", lambda log: log(division="open").set("cache_clear", False)),
    ("ORD02", "error", lambda log: log().move("cache_clear", after="run_stop")),
    ("ORD02", "warning", lambda log: log().set("cache_clear", False)),
    ("ORD02", "warning", lambda log: log().shift("cache_clear", -30 * 3_600_000)),
    ("ORD03", "", lambda log: log(round_="3.0").stage(after="init_start")),
    (
        "ORD03",
        "",
        lambda log: log(round_="3.0").stage(after="epoch_stop").add("run_resumed", None, before="eval_start"),
    ),
    ("ORD03", "error", lambda log: log().stage(after="run_start").drop("staging_start")),
    ("ORD03", "error", lambda log: log(round_="2.0").stage(after="run_start").shift("staging_start", -1_000)),
    ("ORD03", "note", lambda log: log(round_="2.0").stage(after="run_start").shift("staging_start", -400)),
    ("ORD03", "note warning", lambda log: log().stage(after="run_stop")),
    (
        "ORD03",
        "error warning",
        lambda log: log().stage(after="run_stop").shift("staging_stop", 800).shift("staging_start", 600),
    ),
    ("ORD03", "error", lambda log: log(round_="2.0").stage(after="init_start")),
    ("ORD03", "warning", lambda log: log().stage(after="epoch_stop")),
    ("ORD03", "note", lambda log: log().stage(after="eval_error")),
    ("ORD04", "error", lambda log: log().move("run_start", before="init_stop")),
    ("ORD04", "error", lambda log: log().double("run_start")),
    ("ORD05", "error", lambda log: log().move("run_stop", before="run_start")),
    ("ORD05", "error", lambda log: log().double("run_stop")),
    ("ORD05", "error", lambda log: log().meta("run_stop", "status", None)),
    ("ORD09", "", lambda log: log().shift("init_start", 800)),
    ("ORD09", "note", lambda log: log().shift("eval_start", -120_000)),  # written late
    ("ORD09", "error", lambda log: log().shift("eval_start", -220_000)),
    ("ORD09", "note", lambda log: log().shift("run_stop", -480)),
    ("ORD09", "", lambda log: log().double("eval_stop", -1).shift("eval_stop", 400)),
    ("ORD09", "error", lambda log: log().shift("run_stop", -995)),
    ("ORD09", "error", lambda log: log(benchmark="deepcam").shift("run_start", 60_990)),
    ("ORD01", "", lambda log: log().stage("init_stop", 600_000)),
    ("ORD01", "", lambda log: log().shift("init_stop", -990)),
    ("ORD01", "note", lambda log: log().shift("init_stop", -3_900)),
    ("ORD01", "warning", lambda log: log().shift("init_stop", -4_100)),
    ("ORD01", "note", lambda log: log().shift("init_stop", -1_500)),
    ("ORD01", "error", lambda log: log().shift("init_stop", -3_600_000)),
    ("ORD20", "note", lambda log: log(benchmark="deepcam", round_="0.7").times(lambda time_ms: time_ms + YEAR_MS)),
    (
        "ORD18",
        "",
        lambda log: (
            log(benchmark="deepcam", epochs=12).steps().shorten(12, 4_000).meta("eval_accuracy", "step_num", 1102, -1)
        ),
    ),
    ("ORD18", "", lambda log: log(epochs=9).times(lambda time_ms: time_ms // 200).shorten(3, 100)),
    (
        "ORD18",
        "note",
        lambda log: log(epochs=9).shorten(1, 900_000).shorten(4, 1_200_000).shorten(8, 12_000_000),
    ),  # slow ones
    ("ORD18", "error", lambda log: log(epochs=4).move("epoch_stop", after="epoch_start")),
    (  # one epoch counted as two
        "ORD18",
        "error",
        lambda log: (
            log()
            .numbers(lambda number: number + (number >= 5))
            .add("epoch_start", None, "epoch_start", 4, epoch_num=5)
            .add("epoch_stop", None, "epoch_stop", 4, epoch_num=5)
        ),
    ),
    ("ORD18", "warning", lambda log: log().shorten(9, 50_000).shorten(10, 50_000).shorten(11, 50_000)),
    (
        "ORD22",
        "warning",
        lambda log: log(benchmark="deepcam").steps().learning_rate(0.001).shift("learning_rate", -400_000),
    ),
    (
        "ORD22",
        "",
        lambda log: log(benchmark="deepcam").steps().learning_rate(0.002).meta("learning_rate", "epoch_num", [3], 2),
    ),
    (
        "ORD22",
        "",  # a key of which most come after their epoch
        lambda log: rename(log(benchmark="deepcam").throughput(), "tracked_stats", "epoch_summary"),
    ),
    ("ORD22", "note", lambda log: log(benchmark="deepcam").throughput().drop("tracked_stats", 4)),
    (
        "ORD22",
        "note",
        lambda log: log(benchmark="deepcam").steps().learning_rate(0.002).shift("eval_start", -300_000),
    ),
    ("QUA14", "note", lambda log: log(benchmark="deepcam").throughput(samples_per_s=1234.5678901234)),
    ("QUA14", "warning", lambda log: log().evaluation(2, MADE_UP).evaluation(3, MADE_UP)),
    (
        "QUA14",
        "warning",
        lambda log: (
            rename(log().learning_rate(0.5), "learning_rate", "train_loss")
            .set("train_loss", MADE_UP)
            .last_evaluation(MADE_UP)
        ),
    ),
    ("QUA14", "", lambda log: log().add("final_loss", MADE_UP, before="run_stop").last_evaluation(MADE_UP)),
    ("QUA13", "note", lambda log: log().evaluation(3, 0.17)),
    ("AMT08", "", lambda log: log().add("number_of_ranks", 64).set("global_batch_size", 16)),
    ("AMT08", "", lambda log: log().set("global_batch_size", 16)),
    ("AMT08", "warning", lambda log: log().set("global_batch_size", 8)),
    ("AMT08", "", lambda log: log().add("number_of_ranks", 2080).set("global_batch_size", 256)),
    (
        "AMT08",
        "warning",
        lambda log: log(benchmark="deepcam").add("number_of_ranks", 64).set("batchnorm_group_size", 3),
    ),
    ("ORD18", "warning", lambda log: log().shorten(5, 90_000)),
    ("SET14", "note", lambda log: log().set("number_of_nodes", 1).set("accelerators_per_node", 1)),
    (
        "PRV01",
        "",
        lambda log: log().raw("seed", lambda line: b"pip: suite @ git+https://git@example.org/suite\n" + line),
    ),
    ("PRV01", "", lambda log: log().meta("seed", "file", "/opt/suite/train.py")),
    ("PRV01", "note", lambda log: log().add("submission_poc_email", "jane.doe@example.org")),
    ("PRV01", "warning", lambda log: log().meta("seed", "file", "/home/jdoe/suite/train.py")),
    (
        "PRV01",
        "warning",
        lambda log: log().raw("run_stop", lambda line: line + b"\nsaved to /gpfs/home/j/jdoe/run_1, done"),
    ),
    ("QUA11", "note", lambda log: log(benchmark="deepcam").last_evaluation(1.0)),
    ("QUA01", "", lambda log: log(division="open").add(TARGET_RECORD, 0.124)),
    ("QUA01", "error", lambda log: log().last_evaluation(-0.1)),
    ("QUA01", "error", lambda log: log().last_evaluation(0.125).add_evaluation(0.1, after="run_stop")),
    ("QUA01", "error", lambda log: log().last_evaluation(0.125).add_evaluation(0.1, after="run_start")),
    ("QUA01", "error", lambda log: log().bytes().replace(b'"eval_error"', b'"eval_accuracy"')),
    ("QUA01", "error", lambda log: log(benchmark="deepcam").last_evaluation(0.8199999)),
    ("QUA01", "error", lambda log: log(division="open").add(TARGET_RECORD, NO_TARGET)),
    ("QUA01", "error", lambda log: log(division="open").by_suite({"train.target": NO_TARGET})),
    ("QUA01", "error", lambda log: log().meta("run_stop", "status", "aborted").meta("run_stop", "ended", COMPLETED)),
    ("QUA02", "error", lambda log: log().last_evaluation("0.1")),
    ("QUA02", "error", lambda log: log().meta("eval_error", "epoch_num", None)),
    ("QUA02", "error", lambda log: log().meta("eval_error", "epoch_num", "23")),
    ("QUA02", "error", lambda log: log().field("eval_error", "metadata", None)),
    ("QUA03", "error", lambda log: log().meta("run_stop", "status", True)),
    ("QUA03", "note", lambda log: log().raw("run_stop", lambda line: b"CUDA out of memory. Tried 20 MiB\n" + line)),
    ("QUA04", "note", lambda log: log().evaluation(2, 0.12)),
    ("QUA03", "error", lambda log: log(round_="0.7").meta("run_stop", "status", "aborted")),
    ("QUA03", "error", lambda log: log(round_="0.7").meta("run_stop", "status", "SUCCESS")),
    (
        "QUA03",
        "error",
        lambda log: log().meta("run_stop", "ended", "failed").meta("run_stop", "cause", "CUDA out of memory"),
    ),
    ("QUA03", "error", lambda log: log().meta("run_stop", "ended", "target_not_met")),
    ("QUA03", "error", lambda log: log().meta("run_stop", "ended", "Aborted")),
    ("QUA03", "warning", lambda log: log().meta("run_stop", "cause", "SIGTERM")),
    ("SET01", "error", lambda log: log().set("submission_org", "")),
    ("SET01", "error", lambda log: log().set("submission_org", "\u200b\u2060")),
    ("SET01", "error", lambda log: log().set("submission_platform", "")),
    ("SET01", "error", lambda log: log().set("submission_division", "Closed")),
    ("SET01", "error", lambda log: log().set("submission_status", "available")),
    ("SET01", "error", lambda log: log().double("submission_division", value="open")),
    ("SET02", "error", lambda log: log().set("submission_benchmark", "CosmoFlow")),
    ("SET02", "error", lambda log: log(round_="2.0").set("submission_benchmark", "openfold")),
    ("SET02", "error", lambda log: log().set("submission_benchmark", "../../etc/passwd")),
    ("SET02", "error", lambda log: log().set("submission_benchmark", "resnet")),
    ("SET02", "error", lambda log: log().set("submission_benchmark", "deepcam")),
    ("SET21", "warning", lambda log: log().set("opt_learning_rate_warmup_epochs", 2048)),
    ("SET03", "error", lambda log: log().drop("opt_name")),
    ("SET03", "error", lambda log: log().double("global_batch_size", value=17)),
    ("SET03", "warning", lambda log: log().double("dropout", value=0.3)),
    ("SET03", "error", lambda log: log(benchmark="deepcam").drop("opt_max_grad_norm")),
    ("SET03", "error", lambda log: log(division="open").drop("train_samples")),
    ("SET04", "", lambda log: log(benchmark="oc20").set("opt_learning_rate_warmup_factor", 1.0)),
    ("SET04", "", lambda log: log(division="open").set("opt_name", "adam")),
    ("SET04", "error", lambda log: log().set("global_batch_size", 0)),
    ("SET04", "error", lambda log: log().set("global_batch_size", "512")),
    ("SET04", "error", lambda log: log().set("dropout", 1.0)),
    ("SET04", "error", lambda log: log().add("sgd_opt_momentum", 0.5)),
    ("SET04", "error", lambda log: log().set("opt_learning_rate_decay_factor", 1.5)),
    ("SET04", "error", lambda log: log().set("opt_learning_rate_decay_boundary_epochs", [0, -3])),
    ("SET04", "error", lambda log: log(benchmark="deepcam").set("opt_eps", 1e-8)),
    ("SET04", "error", lambda log: log(benchmark="deepcam").set("opt_weight_decay", -0.1)),
    ("SET04", "error", lambda log: log(benchmark="oc20").set("opt_name", "adamw")),
    ("SET04", "error", lambda log: log(benchmark="oc20").set("opt_learning_rate_warmup_factor", 1.5)),
    ("SET04", "error", lambda log: log(benchmark="openfold").set("val_every_iters", 80)),
    ("SET05", "error", lambda log: log().set("eval_samples", "65536")),
    ("SET05", "error", lambda log: log(benchmark="openfold").set("eval_samples", 90)),
    ("SET05", "error", lambda log: log(benchmark="deepcam").set("train_samples", 121_216)),
    ("SET05", "error", lambda log: log(division="open").set("train_samples", "")),
    ("SET06", "note", lambda log: log().set("submission_platform", "18xSUBMISSION_PLATFORM_PLACEHOLDER")),
    ("SET06", "note", lambda log: log().set("submission_org", "Umbrella Corp.")),
    ("SET08", "", lambda log: log().double("seed", value=77)),
    ("SET08", "error", lambda log: log().set("seed", "lucky")),
    ("SET08", "error", lambda log: log().set("seed", 0.5)),
    ("SET08", "error", lambda log: log().set("seed", 10**400)),
    ("SET08", "warning", lambda log: log(benchmark="deepcam").double("seed", value=77)),
    ("SET07", "error", lambda log: log(division="open", variant=MINI_2)),
    ("SET07", "error", lambda log: log(division="open").add(KEY, OWN)),
    ("SET07", "error", lambda log: log(division="closed", variant=MINI)),
    ("SET07", "error", lambda log: log().add(KEY, None)),
    ("SET07", "error", lambda log: log().add(KEY, FULL).add(KEY, MINI)),
    ("SET07", "error", lambda log: log(benchmark="openfold", division="open").add(KEY, MINI)),
    ("SET07", "error", lambda log: log(benchmark="oc20", division="open").add(KEY, MINI_2)),
)
