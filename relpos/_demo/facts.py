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
    report.say(
        f"relpos {config['version']}, kernels {config['isa']} "
        f"(of {', '.join(config['isa_tables'])}), BLAS {config['blas']}, "
        f"{config['threads']} threads (from {config['threads_from']}), "
        f"NumPy {config['numpy']}"
    )
