"""Plot universes: slices at four redshifts, and their power spectra beside linear theory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cosmoflow.simulation.recipe import PRIORS, Recipe
from cosmoflow.simulation.universe import REDSHIFTS, growth, linear_power

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
        extent = (0, length_mpc_h, 0, length_mpc_h)
        for row, z in enumerate(REDSHIFTS):
            picture = np.log1p(counts[:, :, len(counts) // 2, row]).T
            image = slices[row, column].imshow(picture, extent=extent, **scale)
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
