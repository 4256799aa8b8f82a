"""Scans as Spark's planner and executor see them: what is pushed down, planned and read."""

from indextables.spark.bridge.scan.builder import ScanBuilder
from indextables.spark.bridge.scan.conditions import condition
from indextables.spark.bridge.scan.description import Described
from indextables.spark.bridge.scan.filters import Node, Translator, parse_tree
from indextables.spark.bridge.scan.native import ListedFile, file_index
from indextables.spark.bridge.scan.scans import ON_DRIVER, Statistics

__all__ = [
    "ON_DRIVER",
    "Described",
    "ListedFile",
    "Node",
    "ScanBuilder",
    "Statistics",
    "Translator",
    "condition",
    "file_index",
    "parse_tree",
]
