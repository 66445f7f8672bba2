"""The command that generates universes from physics, in the published formats: data for a laptop, and for tests.

Plots have slices at four redshifts, and power spectra beside linear theory.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.command import UsageError, count, positive
from common.commands.synthesize import Synthesis
from common.data.build import DatasetPlan, Item
from common.reference import SPLITS
from cosmoflow.data.raw import write_universe
from cosmoflow.data.sample_files import CHANNELS, FORMATS, SampleFormat
from cosmoflow.reference import MINIS, TARGET
from cosmoflow.simulation import PRESETS, PRIORS, REDSHIFTS, Recipe, growth, linear_power

UNIVERSES: Final = 3
NAMES: Final = {
    "omega_m": "$\\Omega_m$ = {:.3f}",
    "sigma_8": "$\\sigma_8$ = {:.3f}",
    "n_s": "$n_s$ = {:.3f}",
    "h_0": "$H_0$ = {:.1f} km/s/Mpc",
}


def measured_power(counts: np.ndarray, length_mpc_h: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the power spectrum of counts (N, N, N): wavenumbers in h/Mpc and P in (Mpc/h)³, averaged over shells.

    Shells are one fundamental wavenumber wide, up to the Nyquist frequency; the window of the voxels is divided out
    and shot noise is not subtracted.
    """
    n = len(counts)
    contrast = np.fft.rfftn(counts / counts.mean() - 1)
    full, half = np.fft.fftfreq(n), np.fft.rfftfreq(n)  # cycles per voxel
    window = np.sinc(full)[:, None, None] * np.sinc(full)[:, None] * np.sinc(half)
    power = np.abs(contrast / window) ** 2 * (length_mpc_h**3 / n**6)
    k = n * np.sqrt(full[:, None, None] ** 2 + full[:, None] ** 2 + half**2)
    # Modes that also represent their conjugates count twice.
    weight = np.broadcast_to(np.where((half == 0) | (half == 0.5), 1, 2), k.shape).ravel()
    shell = np.rint(k).astype(int).ravel()
    modes, wavenumbers, powers = (
        np.bincount(shell, weight * values.ravel())[1 : n // 2] for values in (np.ones_like(k), k, power)
    )
    return 2 * np.pi / length_mpc_h * wavenumbers / modes, powers / modes


def draw_samples(recipe: Recipe, seed: int, figure: Any) -> None:
    """Draw the first training universes in a figure: universes in columns, redshifts in rows, spectra below."""
    rows = len(REDSHIFTS)
    width_in, slices_in, spectra_in = 2.6 * UNIVERSES + 0.6, 2.5 * rows + 1.6, 3.4
    figure.set_size_inches(width_in, slices_in + spectra_in)
    upper, lower = np.ravel(figure.subfigures(2, 1, height_ratios=(slices_in, spectra_in)))
    slices = upper.subplots(rows, UNIVERSES, squeeze=False)
    spectra = lower.subplots(1, UNIVERSES, sharey=True, squeeze=False)[0]
    universes = [recipe.simulate_universe(seed, 0, i) for i in range(UNIVERSES)]
    brightest = max(float(np.log1p(counts[:, :, len(counts) // 2]).max()) for counts, _ in universes)
    scale: dict[str, Any] = {"origin": "lower", "cmap": "magma", "vmin": 0, "vmax": brightest}
    for column, (counts, labels) in enumerate(universes):
        prior = PRIORS[recipe.prior]
        parameters = prior.parameters(labels)
        length_mpc_h = recipe.box.length(parameters["h_0"])
        for row, z in enumerate(REDSHIFTS):
            picture = np.log1p(counts[:, :, len(counts) // 2, row]).T
            image = slices[row, column].imshow(picture, extent=(0, length_mpc_h, 0, length_mpc_h), **scale)
            slices[row, column].tick_params(labelleft=column == 0, labelbottom=row == rows - 1)
            if column == 0:
                slices[row, column].set_ylabel(f"z = {z:g}\ny in Mpc/h")
        slices[-1, column].set_xlabel("x in Mpc/h")
        slices[0, column].set_title(_format_title({name: parameters[name] for name in prior.ranges}), fontsize=9)
        _draw_spectra(spectra[column], counts, parameters, length_mpc_h)
    upper.colorbar(
        image, ax=slices, location="bottom", shrink=0.6, aspect=40, pad=0.01, label="log(1 + particles per voxel)"
    )
    upper.suptitle(f"Slices one voxel thick ({recipe.prior} prior, seed {seed})")
    spectra[0].set_ylabel("P(k) in (Mpc/h)³")
    spectra[0].legend(fontsize=8, loc="lower left")
    lower.suptitle("Measured spectra (points) and linear theory D² P(k) (lines)")


def _format_title(labels: dict[str, float]) -> str:
    """Return the labels of a universe in two lines."""
    first, *others = (NAMES[name].format(value) for name, value in labels.items() if name in NAMES)
    drift = [f"{value:.1f}" for name, value in labels.items() if name not in NAMES]
    second = f"drift = ({', '.join(drift)}) Mpc/h" if drift else "   ".join(others[1:])
    return "   ".join((first, *others[:1])) + "\n" + second


def _draw_spectra(axes: Any, counts: np.ndarray, parameters: dict[str, float], length_mpc_h: float) -> None:
    from matplotlib.ticker import LogLocator

    omega_m, sigma_8, n_s, h_0, *_ = parameters.values()
    for channel, z in enumerate(REDSHIFTS):
        k, power = measured_power(counts[..., channel], length_mpc_h)
        theory = growth(z, omega_m) ** 2 * linear_power(k, omega_m, sigma_8, n_s, h_0 / 100)
        color = f"C{channel}"
        axes.loglog(k, theory, color=color, linewidth=1)
        axes.loglog(k, power, ".", color=color, label=f"z = {z:g}")
    axes.set_xlabel("k in h/Mpc")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.grid(alpha=0.3)


RAW: Final = "hdf5"


def generate_universe(recipe: Recipe, seed: int, samples: SampleFormat | None, item: Item, folder: Path) -> None:
    """Generate a universe; the item's source is the index of its split, its own index, and the stem of its files.

    samples: None: raw universes.
    """
    split, i, stem = item.source
    counts, labels = recipe.simulate_universe(seed, split, i)
    if samples is None:
        write_universe(folder / f"{stem}.{RAW}", counts, labels, PRIORS[recipe.prior])
    else:
        samples.write_universe(folder / stem, np.split(counts, recipe.subvolumes), labels)


def plan_synthesis(recipe: Recipe, seed: int, samples: SampleFormat | None) -> DatasetPlan:
    """Return the plan of a synthetic dataset, one item per universe; without a format of samples, of raw universes."""
    items = []
    job = 20_000_000 + seed % 10_000_000
    for code, (split, universes) in enumerate(zip(SPLITS, (recipe.train, recipe.validation), strict=True)):
        for i in range(universes):
            name = f"univ_ics_2019-03_a{10_000_000 + 5_000_000 * code + i}"
            stem = f"{job}/{name}" if samples is None else f"{split}/{job}_{name}"
            files = (f"{stem}.{RAW}",) if samples is None else samples.names_of_universe(stem, recipe.subvolumes)
            items.append(Item(name, files, (code, i, stem)))
    cubes = recipe.subvolumes**3
    return DatasetPlan(
        "cosmoflow",
        SYNTHESIS.variant_of(recipe) if samples else "synthetic",
        facts={
            **SYNTHESIS.describe_generator(),
            "seed": seed,
            "prior": {name: list(ends) for name, ends in PRIORS[recipe.prior].ranges.items()},
            "box": asdict(recipe.box),
            "subvolumes": recipe.subvolumes,
            "sample_shape": [recipe.grid] * 3 + [CHANNELS],
            "samples": {"train": recipe.train * cubes, "validation": recipe.validation * cubes},
            **(samples.facts if samples else {"format": RAW, "compression": "none"}),
        },
        items=tuple(items),
        make=partial(generate_universe, recipe, seed, samples),
        bytes_per_item=(samples or SampleFormat(gzip=False)).bytes_of(recipe.box.grid),
        noun="universes",
    )


class Synthesize(Synthesis):
    """The command of CosmoFlow."""

    module = "cosmoflow.synthesize"
    description = """\
Generate universes from physics: the linear spectrum of matter, displaced particles (2LPT), four redshifts, and four
parameters drawn from a prior: in the mini problem sigma_8 and a drift along three axes, else Omega_m, sigma_8, n_s and
H_0. The files have the published formats and names; job and seed in the names are invented.
Without options, generate the mini dataset: 2,048 + 256 universes of 32 x 32 x 32 x 4.

The same arguments give the same data, for any number of workers. You can stop at any time: the same command resumes.
A folder with other data is refused.
"""
    examples = """\
examples:
  python -m cosmoflow.synthesize data/cosmoflow-mini            the mini problem, half a minute on two cores
  python -m cosmoflow.synthesize data/cosmoflow-mini --verify   again: reuse everything, compare checksums
  python -m cosmoflow.synthesize data/seed7 --seed 7            the mini problem with other universes
  python -m cosmoflow.synthesize data/full --preset full-size   12 samples of 128^3, as large as the published ones
  python -m cosmoflow.synthesize data/raw --preset full-size --grid 64 --subvolumes 2 --format hdf5
                                                                raw universes, for `python -m cosmoflow.prepare convert`
  python -m cosmoflow.synthesize --plot                         no data, only slices and spectra in universes.png
"""
    presets = PRESETS
    sources = ("cosmoflow.simulation",)
    known_digests = tuple(digest for mini in MINIS for digest in mini.data_sha256)
    target = TARGET
    picture = "universes.png"
    draw = staticmethod(draw_samples)

    def add_options(self, content: Any, files: Any) -> None:
        """Add the options of universes."""
        content.add_argument(
            "--prior",
            choices=PRIORS,
            help="the labels: drift: those of the mini problem; original: as published, +-10 %% around the mean; wide: "
            "the same with wider ranges",
        )
        content.add_argument("--grid", type=positive, metavar="N", help="voxels per side of a sample")
        content.add_argument(
            "--subvolumes", type=positive, metavar="K", help="cut each universe of K*N voxels per side into K^3 samples"
        )
        content.add_argument("--particles", type=positive, metavar="N", help="particles per side of a universe, even")
        content.add_argument(
            "--length", type=float, metavar="MPC_H", help="side of a universe in Mpc/h; 0: voxels of H_0/70"
        )
        content.add_argument("--train", type=count, metavar="N", help="universes for training")
        content.add_argument("--validation", type=count, metavar="N", help="universes for validation")
        files.add_argument("--format", choices=(*FORMATS, RAW), default="tfrecord", help="hdf5: raw universes, uncut")
        files.add_argument("--compress", choices=("gzip", "none"), help="default: gzip for tfrecord")

    def changed_fields(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the fields of a preset that the arguments replace."""
        changes = super().changed_fields(args)
        return changes if args.length is None else changes | {"length_mpc_h": args.length or None}

    def plan_dataset(self, recipe: Recipe, args: argparse.Namespace) -> DatasetPlan:
        """Return the plan of samples, or of raw universes."""
        if args.format == RAW and args.compress == "gzip":
            raise UsageError("raw universes cannot be compressed: omit --compress")
        samples = None if args.format == RAW else SampleFormat.from_options(args.format, args.compress)
        return plan_synthesis(recipe, args.seed, samples)

    def required_facts(self, data: Any) -> dict[str, Any]:
        """Return the format and the shape of samples that a configuration reads."""
        return {"format": data.format, "sample_shape": list(data.sample_shape)}

    def next_step(self, plan: DatasetPlan, folder: Path) -> str:
        """Return the next command: cut raw universes, or train."""
        if plan.facts["format"] == RAW:
            return (
                f"python -m cosmoflow.prepare convert {folder} DATA_DIR --sample-size {plan.facts['sample_shape'][0]}"
            )
        return super().next_step(plan, folder)

    def data_keys(self, plan: DatasetPlan) -> str:
        """Return format and shape of the samples, where they are not those of the configurations."""
        shape, kind = ", ".join(map(str, plan.facts["sample_shape"])), plan.facts["format"]
        keys = "" if plan.variant == self.mini else f" 'data.sample_shape=[{shape}]'"
        return keys if kind == "tfrecord" else f"{keys} data.format={kind}"


SYNTHESIS: Final = Synthesize()
main = SYNTHESIS.main


if __name__ == "__main__":
    sys.exit(main())
