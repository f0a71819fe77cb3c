"""relpos: attention with relative positions, exact C kernels for NumPy."""

__version__ = "0.1.0"

try:
    from relpos._config import (
        get_num_threads,
        set_num_threads,
        show_config,
        threads,
    )
except ImportError as exc:
    if exc.name != "relpos._core":
        raise
    raise ImportError(
        "relpos is imported from a source tree whose C extension is not built; "
        "run `python -m pip install -e .` in it, or leave its folder to use an "
        "installed relpos",
        name="relpos._core",
    ) from exc

__all__ = [
    "__version__",
    "get_num_threads",
    "set_num_threads",
    "show_config",
    "threads",
]
