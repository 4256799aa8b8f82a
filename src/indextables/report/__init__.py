"""The report page of a table: what it shows (`data`), and the page with its charts (`page`)."""

from indextables.report.data import gather
from indextables.report.page import page

__all__ = ["gather", "page"]
