"""Names that must not be mixed up. They cost nothing at run time and let mypy refuse a swapped argument."""

from typing import NewType

WorkloadUid = NewType("WorkloadUid", str)
ClusterName = NewType("ClusterName", str)
QueueName = NewType("QueueName", str)
FlavorName = NewType("FlavorName", str)
ProductName = NewType("ProductName", str)
RegionName = NewType("RegionName", str)
StoreName = NewType("StoreName", str)
DataSetName = NewType("DataSetName", str)
DataLabel = NewType("DataLabel", str)
CountryCode = NewType("CountryCode", str)
DecisionId = NewType("DecisionId", str)
SHORTEST_START = 4
"""Letters of a decision's id that count as its beginning: fewer are rather a slip."""
