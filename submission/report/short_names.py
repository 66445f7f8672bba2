"""Shorten the names of accelerators and frameworks in system descriptions, so that they fit a table."""

from __future__ import annotations

import re
from typing import Final

from submission.text_table import shortened

VENDOR: Final = re.compile(r"\((?:R|TM)\)|\b(?:NVIDIA|Tesla|Quadro|FUJITSU|Intel|AMD|IBM|Processors?|CPU|GPU)\b", re.I)
VARIANT: Final = re.compile(r"\s*@.*|\s*\(.*|\s*\b\d+-Core.*|(?:\s*-\s*|\s+)(?:SXM|PCIe|NVL|\d+ ?GB).*", re.I)
"""What follows the name of a model: clock, form factor, size of the memory."""
FRAMEWORKS: Final = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet", "jax": "JAX", "paddle": "PaddlePaddle",
    "mindspore": "MindSpore",
}  # fmt: skip
VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
LONGEST: Final = 20


def short_model(name: str) -> str:
    """Return the model of an accelerator or processor: A100 for NVIDIA A100-SXM4-40GB (400W)."""
    model = " ".join(VARIANT.sub("", VENDOR.sub(" ", name)).split())
    return shortened(model or name, LONGEST)


def short_framework(name: str) -> str:
    """Return a framework and its version: PyTorch 22.08 for PyTorch NVIDIA Release 22.08."""
    known = next((text for word, text in FRAMEWORKS.items() if word in name.lower()), "")
    version = VERSION.search(name)
    return shortened(f"{known} {version[0]}" if known and version else known or name, LONGEST)
