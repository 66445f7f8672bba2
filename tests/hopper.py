"""Compile Triton kernels ahead of time for an H100, H200 (sm_90a) or A100 (sm_80), and read what their code needs.

No GPU is needed: Triton brings NVIDIA's assembler. A kernel that spills registers, or of which the assembler tells
nothing, fails; also one that `compile_for_amd` compiles for an MI300 (gfx942).
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

CAPABILITIES = {"sm_90a": 90, "sm_80": 80}
TRITON = "3.6.0"
TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}
SPILLED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SPILLED_BY_AMD = re.compile(r"\.[sv]gpr_spill_count: +(\d+)")


class Resources(NamedTuple):
    """What a thread of the kernel needs, and the kernel's machine code as text (SASS)."""

    registers: int
    shared_bytes: int
    sass: str


def resources(kernel, arguments, *, warps=4, stages=3, target="sm_90a", **options):
    """Compile a kernel as it would be launched with these arguments; raise AssertionError if it spills.

    target: sm_90a or sm_80. options: more of Triton's.
    arguments: by name, without those that are not constexpr and None; whole numbers, floats, and tensors or tuples of
    tensors, of any device, whose sizes do not matter and whose addresses are taken for multiples of 16.
    """
    import triton

    if triton.__version__ != TRITON:
        pytest.skip(f"Triton {triton.__version__} makes other machine code than {TRITON}, see the Makefile")
    compiled = _compiled(kernel, arguments, ("cuda", CAPABILITIES[target], 32), warps, stages, options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    report, sass = _assembled(compiled.asm["ptx"], tools, target)
    registers, spilled = REGISTERS.search(report), SPILLED.search(report)
    assert registers and spilled, f"the assembler tells no registers of {kernel.__name__}:\n{report}"
    assert spilled.groups() == ("0", "0", "0"), f"{kernel.__name__} spills: {spilled[0]}, {registers[0]}"
    return Resources(int(registers[1]), compiled.metadata.shared, sass)


def compile_for_amd(kernel, arguments, *, warps=4, stages=2, **options):
    """Compile a kernel as it would be launched with these arguments, see `resources`; return its machine code."""
    code = _compiled(kernel, arguments, ("hip", "gfx942", 64), warps, stages, options).asm["amdgcn"]
    assert SPILLED_BY_AMD.findall(code) == ["0", "0"], f"{kernel.__name__} spills, or does not tell"
    return code


def _compiled(kernel, arguments, target, warps, stages, options):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[(place,)] = "constexpr", value
        elif isinstance(value, tuple):
            signature[parameter.name] = tuple(TYPES[tensor.dtype] for tensor in value)
            attributes |= {(place, index): [["tt.divisibility", 16]] for index in range(len(value))}
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = TYPES[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
            if isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize:
                attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": warps, "num_stages": stages, **options}
    return triton.compile(source, target=GPUTarget(*target), options=options)


def _assembled(ptx, tools, target):
    """Return the assembler's report and the machine code as text."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [tools / "ptxas", "-v", f"-arch={target}", source, "-o", binary]
        report = subprocess.run(command, capture_output=True, text=True, check=False)
        assert report.returncode == 0, f"the assembler failed:\n{report.stderr}"
        sass = subprocess.run([tools / "cuobjdump", "--dump-sass", binary], capture_output=True, text=True, check=True)
        return report.stderr + report.stdout, sass.stdout
