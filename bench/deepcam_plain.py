"""The peer of `bench/deepcam.py`: the published network written plainly from its table of layers, in torch's modules.

    python bench/deepcam_plain.py CASE

Independent of deepcam/: NCHW, contiguous, float32 or bf16 by torch's autocast, weighted cross-entropy,
`torch.optim.AdamW`, the C library's own handling of memory. A step starts from snapshots (H, W, C) as they lie in the
files, which the reference normalises and transposes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from steps import autocast_plainly, facts, timed
from torch import Tensor, nn
from workers import given_case, serve

CLASSES = 3
WEIGHTS = (1.00173, 2.61461, 1.71642)


def separable(inside: int, outside: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a depthwise 3 x 3 convolution and a pointwise one."""
    depthwise = nn.Conv2d(inside, inside, 3, stride, dilation, dilation, groups=inside, bias=False)
    return nn.Sequential(depthwise, nn.Conv2d(inside, outside, 1, bias=False))


def unit(convolution: nn.Module, channels: int) -> nn.Sequential:
    """Return the convolution with batch normalisation and ReLU."""
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU())


class Residual(nn.Module):
    """A block of the table: separable units through these widths, then one that is not normalised, with the stride.

    plain: without that last one, for blocks of stride 1 that are not the last of their stage.
    """

    def __init__(self, widths: tuple[int, ...], stride: int = 1, dilation: int = 1, plain: bool = False) -> None:
        super().__init__()
        inside, outside = widths[0], widths[-1]
        units = [unit(separable(before, after, 1, dilation), after) for before, after in pairwise(widths)]
        units[-1] = units[-1][:-1]  # no ReLU
        if not plain:
            units.append(separable(outside, outside, stride))
        self.main = nn.Sequential(*units)
        self.skip = None
        if inside != outside or stride != 1:
            self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.main(x) + (x if self.skip is None else self.skip(x))
        return y


class Network(nn.Module):
    """DeepLabv3+ by its table of layers, of any width. `model` are options of deepcam's configuration."""

    def __init__(self, channels: int, model: dict[str, Any]) -> None:
        super().__init__()
        width, coarse = model.get("width", 1.0), model.get("output_stride", 16) == 16
        rates = model.get("aspp_rates") or ((1, 6, 12, 18) if coarse else (1, 12, 24, 36))
        a, b, c, d, e, f, g, h, low = (
            8 * max(1, round(full * width / 8)) for full in (32, 64, 128, 256, 728, 1024, 1536, 2048, 48)
        )
        dilation = 1 if coarse else 2
        self.stem = nn.Sequential(
            unit(nn.Conv2d(channels, a, 3, 2, 1, bias=False), a), unit(nn.Conv2d(a, b, 3, 1, 1, bias=False), b)
        )
        self.block1 = Residual((b, c, c), stride=2)
        blocks = [nn.ReLU(), Residual((c, d, d), stride=2), nn.ReLU(), Residual((d, e, e), stride=2 if coarse else 1)]
        for _ in range(model.get("middle_blocks", 16)):
            blocks += [nn.ReLU(), Residual((e, e, e, e), dilation=dilation, plain=True)]
        blocks += [nn.ReLU(), Residual((e, e, f), dilation=dilation)]
        exits = [unit(separable(before, after, 1, 2 * dilation), after) for before, after in ((f, g), (g, g), (g, h))]
        self.rest = nn.Sequential(*blocks, *exits)
        self.branches = nn.ModuleList(unit(self._branch(h, d, rate), d) for rate in rates)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(h, d, 1, bias=False))
        self.scale, self.shift = nn.Parameter(torch.ones(1, d, 1, 1)), nn.Parameter(torch.zeros(1, d, 1, 1))
        self.merge = unit(nn.Conv2d((len(rates) + 1) * d, d, 1, bias=False), d)
        self.low = unit(nn.Conv2d(c, low, 1, bias=False), low)
        self.up = nn.Sequential(*(unit(self._doubling(d, d), d) for _ in range(2 if coarse else 1)))
        self.head = nn.Sequential(
            unit(nn.Conv2d(d + low, d, 3, 1, 1, bias=False), d),
            unit(nn.Conv2d(d, d, 3, 1, 1, bias=False), d),
            nn.Conv2d(d, d, 1),
            unit(self._doubling(d, d), d),
            self._doubling(d, CLASSES),
        )

    @staticmethod
    def _branch(inside: int, outside: int, rate: int) -> nn.Conv2d:
        if rate == 1:
            return nn.Conv2d(inside, outside, 1, bias=False)
        return nn.Conv2d(inside, outside, 3, 1, rate, rate, bias=False)

    @staticmethod
    def _doubling(inside: int, outside: int) -> nn.ConvTranspose2d:
        return nn.ConvTranspose2d(inside, outside, 3, 2, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, 3, H, W) of snapshots (B, C, H, W)."""
        low = self.block1(self.stem(x))
        x = self.rest(low)
        whole = torch.relu(self.pool(x) * self.scale + self.shift)
        views = [branch(x) for branch in self.branches]
        x = self.merge(torch.cat([*views, whole.repeat(1, 1, *x.shape[2:])], 1))
        # The decoder reads block 1 after its ReLU.
        logits: Tensor = self.head(torch.cat([self.up(x), self.low(torch.relu(low))], 1))
        return logits


def snapshots(case: Any) -> tuple[Tensor, Tensor]:
    """Return random snapshots (B, H, W, C) and the classes (B, H, W) of their grid points."""
    size = (case.batch, case.height, case.width)
    return torch.rand(*size, case.channels), torch.randint(CLASSES, size, dtype=torch.uint8)


def main() -> None:
    case = given_case()
    torch.set_num_threads(case.threads)
    network = Network(case.channels, case.model)
    optimizer = torch.optim.AdamW(network.parameters(), 0.001, eps=1e-6, weight_decay=0.01)
    weights = torch.tensor(WEIGHTS)
    criterion = nn.CrossEntropyLoss(weights, reduction="none")
    x, y = snapshots(case)
    minimum, scale = torch.zeros(case.channels), torch.ones(case.channels)

    def step() -> None:
        optimizer.zero_grad()
        image = ((x - minimum) * scale).permute(0, 3, 1, 2).contiguous()
        with autocast_plainly(case):
            losses = criterion(network(image), y.long())
        losses.mean().backward()
        optimizer.step()

    serve(case, step, lambda: facts(network), lambda steps: timed(torch.device("cpu"), step, steps))


if __name__ == "__main__":
    main()
