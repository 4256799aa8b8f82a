"""The report page of a table: what it shows (`data`), its charts, and the page itself."""

from indextables.report.data import gather
from indextables.report.page import page

__all__ = ["gather", "page"]
