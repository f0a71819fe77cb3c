"""Makes benchmarks/ importable; without a source tree its tests are left out."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))
collect_ignore_glob = [] if (ROOT / "benchmarks").exists() else ["test_[!b]*.py"]
