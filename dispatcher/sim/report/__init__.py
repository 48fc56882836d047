"""From results to what people read: numbers (`summary`), tables (`tables`), their text and rich form (`sheet`)."""

from dispatcher.sim.report.sheet import Sheet, sheet_text
from dispatcher.sim.report.summary import ContenderSummary, GroupSummary, Ratio, Spread, summarise
from dispatcher.sim.report.tables import report_sheets, report_text

__all__ = [
    "ContenderSummary",
    "GroupSummary",
    "Ratio",
    "Sheet",
    "Spread",
    "report_sheets",
    "report_text",
    "sheet_text",
    "summarise",
]
