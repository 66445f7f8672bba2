"""The run at Weights & Biases; WANDB_MODE=offline keeps it in output_dir, for `wandb sync`."""

from __future__ import annotations

import secrets
from typing import Final

from common.ending import Ending
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.tracking.tracked import keep_id, known_id, named, run_name

FINISH_S: Final = 300.0
"""How long the end of a run waits for what is still to be sent."""


class WandbRun(Callback):
    """Sends a run to a project. name: of the run there; None: that of its folder."""

    name = "wandb"

    def __init__(self, project: str | None, run: str | None) -> None:
        self._project, self._run_name = project, run

    def begin(self, run: RunStart) -> None:
        import wandb  # an optional package

        id_ = known_id(run, self.name) or secrets.token_hex(8)
        # With its `console` it would take the place of standard output, and it writes much there itself.
        settings = wandb.Settings(console="off", silent=True, finish_timeout=FINISH_S)
        self._run = wandb.init(
            project=self._project or run.benchmark,
            name=self._run_name or run_name(run.folder),
            id=id_,
            resume="allow",
            dir=str(run.folder),
            config={**run.config, "seed": run.seed, "benchmark": run.benchmark},
            allow_val_change=True,  # such as train.epochs of a resumed run
            settings=settings,
        )
        keep_id(run, self.name, id_)
        offline = f"offline, in {run.folder}/wandb: `wandb sync` sends it"
        print(f"wandb: {offline if self._run.offline else self._run.url}", flush=True)
        # Steps after a checkpoint come again, and wandb's own counter never goes back.
        self._run.define_metric("step/global_step", hidden=True)
        self._run.define_metric("step/*", step_metric="step/global_step")
        self._run.define_metric("epoch/epoch", hidden=True)
        self._run.define_metric("epoch/*", step_metric="epoch/epoch")
        self._run.define_metric("epoch/quality", summary="min" if run.target.lower_is_better else "max")

    def step(self, step: StepRecord) -> None:
        self._run.log(named(step))

    def epoch(self, epoch: Epoch) -> None:
        self._run.log({**named(epoch), "epoch/epoch": epoch.epoch})

    def end(self, ending: Ending) -> None:
        self._run.summary["ended"] = ending.how
        self._run.finish(exit_code=0 if ending.final else ending.exit_status)
