"""The blueprint: the files that operators edit, read strictly and compiled to a frozen policy (design section 7)."""

from dispatcher.config.blueprint import Blueprint
from dispatcher.config.loader import LoadResult, load_blueprint
from dispatcher.config.problems import Problem, Severity
from dispatcher.config.watcher import BlueprintWatcher

__all__ = ["Blueprint", "BlueprintWatcher", "LoadResult", "Problem", "Severity", "load_blueprint"]
