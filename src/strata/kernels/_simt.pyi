"""The device kernels compiled for the host (csrc/device/host/simt_bind.cpp)."""

def launch(
    unit: str,
    name: str,
    grid: tuple[int, int, int],
    block: int,
    shared: int,
    arguments: tuple[int | float, ...],
    order: int,
) -> None: ...
def kernels() -> list[tuple[str, str]]: ...
