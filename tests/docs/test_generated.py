from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_generated_pages_are_current():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGES
    for name, page in generate.PAGES.items():
        assert (DOCS / name).read_text() == page(), f"{name} is old: run `make docs`"
