"""Step 1: what is running."""

from __future__ import annotations

import relpos
from relpos._demo.report import Report

__all__ = ["facts"]


def facts(report: Report) -> None:
    """One line: version, kernels, BLAS, threads."""
    report.begin("What is running")
    config = relpos.show_config(mode="dicts")
    report.facts.update(config)
    blas = " ".join(
        config["blas"].split()[:3]
    )  # which and its version, not its options
    report.say(
        f"relpos {config['version']}, kernels {config['isa']} "
        f"(of {', '.join(config['isa_tables'])}), BLAS: {blas}, "
        f"{config['threads']} threads (from {config['threads_from']}), "
        f"NumPy {config['numpy']}"
    )
