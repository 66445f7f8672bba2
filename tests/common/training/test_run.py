"""One training on its ranks: what rank 0 alone does."""

from types import SimpleNamespace

import pytest
import torch

from common.settings.run import SubmissionConfig
from common.training import run
from common.training.run import Training


@pytest.mark.parametrize("main", [True, False])
def test_only_rank_0_reads_sources_git_and_manifest(main, monkeypatch):
    stated = []
    monkeypatch.setattr(run, "collect_provenance", lambda packages: {"packages": packages, "host": {}})
    monkeypatch.setattr(run, "read_variant_and_digest", lambda folder: ("full", "0" * 64))
    monkeypatch.setattr(run.mllog, "log_beginning", lambda *given, **instance: stated.append(given[-1]))
    training = SimpleNamespace(
        config=SimpleNamespace(
            drop_page_cache=False, submission=SubmissionConfig(), data=SimpleNamespace(data_dir="data")
        ),
        shared=None,
        instance=None,
        dist=SimpleNamespace(is_main=main, local_rank=0, local_size=1, device=torch.device("cpu")),
        benchmark=SimpleNamespace(name="cosmoflow", config=SubmissionConfig),
        resolved={"a": 1},
        recorded_code={},
        _log_copying=lambda log: None,
    )
    training._collect_sources = lambda: Training._collect_sources(training)
    Training._begin_log(training, None)
    assert set(stated[0]) == ({"packages", "host", "data_sha256", "config", "hyperparameters"} if main else set())


@pytest.mark.parametrize(("drop", "cleared"), [(False, None), ("prologue", True)])
def test_the_log_says_that_the_prologue_cleared_the_caches(drop, cleared, tmp_path, monkeypatch):
    monkeypatch.setattr(run.mllog, "DROP_CACHES", tmp_path / "nowhere" / "drop_caches")
    training = SimpleNamespace(
        config=SimpleNamespace(drop_page_cache=drop, submission=SubmissionConfig(org="a", platform="b")),
        shared=None,
        instance=None,
        dist=SimpleNamespace(is_main=False, local_rank=0),
        benchmark=SimpleNamespace(name="cosmoflow"),
        _log_copying=lambda log: None,
    )
    events = {}
    Training._begin_log(
        training,
        SimpleNamespace(event=lambda key, value, **fields: events.update({key: value}), start=lambda key: None),
    )
    assert events["cache_clear"] is cleared
