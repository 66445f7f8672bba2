"""Right or wrong: recorded steps, the networks and their kernels, before anything is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gpu.cases import Bench, WrongError
from gpu.references import FORMATS
from gpu.training import Plan, Watch, compare_losses, compare_network, train
from gpu.variants import GRAPHS, MODELS, NO_TUNING, PLAIN, Variant

SMOKE_PLAN: Final = Plan(warm=0, watched=0, timed=5, different=1)
"""Without warm-up the fourth step on the only batch would be recorded; the others replay it."""


def smoke(bench: Bench) -> None:
    """Train each network for some steps, recorded and not, and compare the losses."""
    for network in MODELS:
        for variant in (PLAIN, GRAPHS):
            names = {"network": network, "batch": 1}
            with bench.case("smoke", **names, variant=variant.name) as row:
                # To time cuDNN's algorithms would take longer than all the steps.
                plan = replace(SMOKE_PLAN, warms_up=variant == GRAPHS)
                losses, measured = train(bench, network, 1, variant.with_keys(NO_TUNING), Watch(bench, plan))
                row.update(losses=losses, until_recorded_s=measured.get("until_recorded_s"))
                if "note" in measured:
                    raise WrongError(measured["note"])
                row["losses_like"] = compare_losses(bench, row)


def networks(bench: Bench) -> None:
    """Compare each network, with each choice of its configuration, in each format."""
    for network, models in MODELS.items():
        for model in models:
            for format in FORMATS:
                if bench.device.type == "cuda" or format != "tf32":  # which is fp32 on a CPU
                    compare_network(bench, network, Variant("", model), format)
