"""Every finding that the doctor can make, in the order in which docs/doctor.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dispatcher.core.doctor.catalog_data import DATA_ENTRIES
from dispatcher.core.doctor.catalog_fleet import FLEET_ENTRIES
from dispatcher.core.doctor.catalog_hub import HUB_ENTRIES
from dispatcher.core.doctor.codes import Code, Entry

CATALOG: Mapping[Code, Entry] = MappingProxyType({**HUB_ENTRIES, **FLEET_ENTRIES, **DATA_ENTRIES})
