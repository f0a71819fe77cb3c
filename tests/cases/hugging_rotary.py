"""Configuration classes of the installed transformers, and their rotary settings."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import logging
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest


def transformers():
    pytest.importorskip("torch")
    return pytest.importorskip("transformers", minversion="5.0")


@functools.cache
def configurations():
    """Return all configuration classes of transformers' models, by name."""
    base = transformers().PreTrainedConfig
    models = importlib.import_module("transformers.models")
    found = {}
    for path in sorted(Path(models.__file__).parent.glob("*/configuration_*.py")):
        module = importlib.import_module(
            f"{models.__name__}.{path.parent.name}.{path.stem}"
        )
        for name, kind in vars(module).items():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, base):
                found[name] = kind
    return found


def fields(kind):
    return {field.name for field in dataclasses.fields(kind)}


@functools.cache
def rotary():
    """Return the classes of one part that have rotary parameters and a type."""
    return {
        name: kind
        for name, kind in configurations().items()
        if "rope_parameters" in fields(kind) and kind.model_type
        if "text_config" not in fields(kind)
    }


@contextmanager
def quietly():
    """Silence the warnings of transformers about settings that a class ignores."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of rope_scaling
            yield
    finally:
        logging.disable(before)


def made(kind, **settings):
    """Return a configuration, or None where the class refuses the settings."""
    with quietly():
        try:
            return kind(**copy.deepcopy(settings))
        except Exception:  # of many kinds
            return None


def layer_types(config):
    """Return the types of layers with rotary parameters of their own, or None alone."""
    rope = config.to_dict().get("rope_parameters") or {}
    return [name for name, values in rope.items() if isinstance(values, dict)] or [None]
