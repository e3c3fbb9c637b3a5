"""What the host's compiler lets pass in the text of device code, and NVRTC refuses."""

import re
from pathlib import Path

import strata.kernels

FOLDER = Path(strata.kernels.__file__).parent / "csrc" / "device"
UNMARKED = re.compile(
    r"^\s+(?!STRATA_|return\b|else\b|if\b|for\b|while\b|switch\b|case\b)"
    r"[A-Za-z_][\w:<>&*, ]* \w+\([^;{}]*\)(?: const)? \{",
    re.MULTILINE,
)
"""A method without STRATA_METHOD: a function of the host alone, for NVRTC and HIP."""


def test_every_method_of_device_code_is_marked():
    for path in sorted(FOLDER.glob("*.h")):
        assert not UNMARKED.findall(path.read_text()), path.name
    once_missed = "struct Few {\n    Shape key_shape() const { return shape; }\n};"
    assert UNMARKED.findall(once_missed)
