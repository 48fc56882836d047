"""The leaf values of the blueprint: text in, exact integers, dates and names out. One reader for each spelling.

Every reader refuses with a rule and a fix (`fail`), and carries the JSON Schema that an editor checks before we do.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, TypeVar

import pycountry
from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from dispatcher.config.problems import did_you_mean
from dispatcher.config.strictyaml import Quoted
from dispatcher.core.literals import USD_MICRO, LiteralError, parse_duration, parse_instant
from dispatcher.core.resources import QuantityError, parse_quantity

T = TypeVar("T")

_LABEL_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(rf"^{_LABEL_NAME}$")
_DNS_SUBDOMAIN = re.compile(rf"^{_LABEL_NAME}(\.{_LABEL_NAME})*$")
_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
_QUALIFIED = re.compile(rf"^({_LABEL_NAME}(\.{_LABEL_NAME})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_INTEGER = re.compile(r"^(0|[1-9][0-9]{0,8})$")
_DECIMAL = re.compile(r"^(0|[1-9][0-9]{0,12})(\.[0-9]+)?$")
_TIME_OF_DAY = re.compile(r"^([01][0-9]|2[0-3]):[0-5][0-9]$")
_DATE = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
_COUNTRY_SLIPS = {"UK": "GB", "EL": "GR"}
_REGIONS_NOT_COUNTRIES = frozenset({"EU", "EEA", "UN"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURRENCIES = frozenset(str(currency.alpha_3) for currency in pycountry.currencies)
_COUNTRIES = frozenset(str(country.alpha_2) for country in pycountry.countries)


class Strict(BaseModel):
    """A mapping of the blueprint: an unknown key is an error at every level, and nothing changes after reading."""

    # A file is read by its outermost model; a validator of each inner one would only be made, at every start.
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False, defer_build=True)


def short_form(pattern: str, about: str) -> ConfigDict:
    """For a mapping that may also be written as one text: an editor must take both."""

    def either(schema: JsonDict) -> None:
        whole = dict(schema)
        schema.clear()
        schema["anyOf"] = [{"type": "string", "pattern": pattern, "description": about}, whole]

    return ConfigDict(json_schema_extra=either)


def fail(rule: str, fix: str = "") -> PydanticCustomError:
    """An error that carries what to do about it."""
    return PydanticCustomError("blueprint", "{rule}", {"rule": rule, "fix": fix})


def _words(read: Callable[[str], T]) -> Callable[[object], T]:
    """A reader of any scalar, quoted or not."""

    def check(value: object) -> T:
        if value is None:
            raise fail("a value is missing", "write it after the colon")
        if not isinstance(value, str):
            raise fail("one value is expected, not a mapping or a list", "write it on the line of its key")
        return read(str(value))

    return check


def _bare(read: Callable[[str], T], what: str) -> Callable[[object], T]:
    """A reader of an unquoted scalar: what is quoted is text, and an editor would say so too."""

    def check(value: object) -> T:
        if isinstance(value, Quoted):
            raise fail(f"text in quotes, where {what} is expected", "remove the quotes")
        return _words(read)(value)

    return check


def _text(value: str) -> str:
    if not value.strip():
        raise fail("an empty text", "write something that a reader can check")
    return value


def _dns_label(value: str) -> str:
    if len(value) > 63 or not _DNS_LABEL.match(value):
        raise fail(
            "not a DNS-1123 label (lower case letters, digits and '-', at most 63)", did_you_mean_name(value, False)
        )
    return value


def _dns_name(value: str) -> str:
    if len(value) > 253 or not _DNS_SUBDOMAIN.match(value):
        raise fail("not a DNS-1123 name (lower case letters, digits, '-' and '.')", did_you_mean_name(value, True))
    return value


def _claim_name(value: str) -> str:
    namespace, slash, name = value.partition("/")
    if not slash:
        raise fail("not NAMESPACE/NAME", "write such as autonomy/radar-volume")
    return f"{_dns_label(namespace)}/{_dns_name(name)}"


def did_you_mean_name(value: str, dots: bool) -> str:
    """The nearest name that Kubernetes would take."""
    near = re.sub(r"[^a-z0-9.]+" if dots else r"[^a-z0-9]+", "-", value.lower()).strip("-.")[:63].strip("-.")
    return f"for example '{near}'" if near else "start with a letter"


def _word(value: str) -> str:
    if not _WORD.match(value):
        raise fail("not a name (letters, digits, '.', '_' and '-', at most 63)", did_you_mean_name(value, True))
    return value


def _label_key(value: str) -> str:
    if len(value) > 316 or not _QUALIFIED.match(value):
        raise fail("not a Kubernetes label key", "such as nvidia.com/gpu.product")
    return value


def _label_value(value: str) -> str:
    if not _LABEL_VALUE.match(value):
        raise fail(
            "not a Kubernetes label value (at most 63 letters, digits, '-', '_' and '.')", "write it as nodes do"
        )
    return value


def _integer(value: str) -> int:
    if value.startswith("-"):
        raise fail("negative, where zero or more is expected", "write 0 or more")
    if not _INTEGER.match(value):
        raise fail("not a whole number below 10^9", "write digits only, such as 8")
    return int(value)


def _positive(value: str) -> int:
    number = _integer(value)
    if number == 0:
        raise fail("zero, where one or more is expected", "write 1 or more, or remove the key")
    return number


def _percent(value: str) -> int:
    number = _integer(value)
    if number > 1000:
        raise fail("more than 1000 percent", "write percent, such as 80")
    return number


def _boolean(value: str) -> bool:
    if value not in ("true", "false"):
        raise fail("not a yes or no that this file knows", "write true or false")
    return value == "true"


def _money(value: str) -> int:
    """Micro-USD, exactly."""
    if value.startswith("-"):
        raise fail("negative money", "write zero or more USD, such as 2.49")
    if not _DECIMAL.match(value):
        raise fail("not an amount of USD", "write digits and a point, such as 2.49")
    if len(value.partition(".")[2]) > 6:
        raise fail("more than 6 decimals: money is counted in millionths of a USD", "round it to 6 decimals")
    return int(Fraction(value) * USD_MICRO)


def _currency(value: str) -> str:
    if value not in _CURRENCIES:
        near = f"did you mean '{value.upper()}'?" if value.upper() in _CURRENCIES else ""
        raise fail("not an ISO 4217 currency", near or "write three capitals, such as EUR")
    return value


def _permille(value: str) -> int:
    if not _DECIMAL.match(value) or len(value.partition(".")[2]) > 3:
        raise fail("not a factor with at most 3 decimals", "write 1 for as declared, 1.5 for half as fast again")
    number = int(Fraction(value) * 1000)
    if not 1 <= number <= 100_000:
        raise fail("a factor outside 0.001 to 100", "write 1 for as declared, 1.5 for half as fast again")
    return number


def _size(value: str) -> int:
    """Bytes of "40TB", "38Ti" or plain bytes; a trailing B is allowed."""
    number = value.removesuffix("B") if value[-2:-1].isalpha() else value
    try:
        size = parse_quantity(number)
    except QuantityError:
        negative = value.startswith("-")
        raise fail("a negative size" if negative else "not a size", "write 40TB, 38Ti or bytes") from None
    if size.denominator != 1:
        raise fail("not a whole number of bytes", "write 40TB, 38Ti or bytes")
    return int(size)


def _duration(value: str) -> int:
    """Seconds."""
    try:
        return parse_duration(value)
    except LiteralError as error:
        raise fail("not a duration", str(error)) from None


def _date(value: str) -> date:
    try:
        if not _DATE.match(value):
            raise ValueError
        day = date.fromisoformat(value)
    except ValueError:
        raise fail("not a date of the calendar", "write year-month-day, such as 2026-11-30") from None
    if day < _EPOCH.date():
        raise fail("a day before 1970", "correct the year")
    return day


def _country(value: str) -> str:
    if value in _COUNTRIES:
        return value
    if value.upper() in _COUNTRY_SLIPS:
        raise fail("not an ISO 3166-1 country", f"did you mean '{_COUNTRY_SLIPS[value.upper()]}'?")
    if value.upper() in _REGIONS_NOT_COUNTRIES:
        raise fail("a group of countries, not a country", "name a set of residency/, such as '@eu27'")
    if value.upper() == "XI":
        raise fail("a customs territory, not a country", "write GB, and ask for the customs_territory where it matters")
    if value.upper() in _COUNTRIES:
        raise fail("a country code in lower case", f"did you mean '{value.upper()}'?")
    raise fail("not an ISO 3166-1 alpha-2 country code", "write two capital letters, such as DE")


def _country_or_set(value: str) -> str:
    """A country, or "@name" for a set of countries of residency/."""
    return f"@{_dns_label(value[1:])}" if value.startswith("@") else _country(value)


def _word_or_set(value: str) -> str:
    """A name, or "@name" for a set of residency/."""
    return f"@{_dns_label(value[1:])}" if value.startswith("@") else _word(value)


def _instant(value: str) -> datetime:
    if _DATE.match(value):
        raise fail("a day, where an instant is expected", f"write when it begins: {value}T00:00:00Z")
    try:
        moment = parse_instant(value)
    except LiteralError as error:
        raise fail("not an instant", str(error)) from None
    if moment < _EPOCH:
        raise fail("a time before 1970", "correct the year")
    return moment


def _moment(value: str) -> datetime:
    """An instant, or a day for the instant at which it begins in UTC."""
    return _instant(f"{_date(value).isoformat()}T00:00:00Z") if _DATE.match(value) else _instant(value)


def _listed(value: object) -> object:
    """One value stands for a list of one."""
    return [value] if isinstance(value, str) else value


def _time_of_day(value: str) -> str:
    if not _TIME_OF_DAY.match(value):
        raise fail("not a time of day", "write hours and minutes, such as 22:00")
    return value


def _timezone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if known:  # a machine without time zone data cannot judge
            fix = did_you_mean(value, tuple(known), "write a name such as Europe/Berlin")
            raise fail("not a time zone", fix) from None
    return value


def _resource(value: str) -> str:
    if len(value) > 316 or not _QUALIFIED.match(value):
        raise fail("not a resource name", "such as cpu, memory or nvidia.com/gpu")
    return value


def _quantity(value: str) -> str:
    """A Kubernetes quantity above zero, kept as written."""
    try:
        number = parse_quantity(value)
    except QuantityError as error:
        raise fail(str(error).removeprefix(f"{value!r} is "), "write a quantity such as 64 or 512Gi") from None
    if number == 0:
        raise fail("zero", "write a quantity above zero, or remove the key")
    return value


def _choice(value: object) -> object:
    return str(value) if isinstance(value, str) else value


def _string(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, **({"examples": list(examples)} if examples else {})})


def _one_or_more(pattern: str) -> dict[str, object]:
    one = {"type": "string", "pattern": pattern}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


_NUMBER_OR_TEXT = {"type": ["string", "number"]}

Text = Annotated[str, BeforeValidator(_words(_text)), WithJsonSchema({"type": "string", "minLength": 1})]
DnsLabel = Annotated[str, BeforeValidator(_words(_dns_label)), _string(_DNS_LABEL.pattern)]
DnsName = Annotated[str, BeforeValidator(_words(_dns_name)), _string(_DNS_SUBDOMAIN.pattern)]
ClaimName = Annotated[
    str,
    BeforeValidator(_words(_claim_name)),
    _string(rf"^{_LABEL_NAME}/{_LABEL_NAME}(\.{_LABEL_NAME})*$", "autonomy/radar-volume"),
]
"""A persistent volume claim of a namespace."""
Word = Annotated[str, BeforeValidator(_words(_word)), _string(_WORD.pattern)]
LabelKey = Annotated[str, BeforeValidator(_words(_label_key)), _string(r"^[A-Za-z0-9./_-]+$")]
LabelValue = Annotated[str, BeforeValidator(_words(_label_value)), WithJsonSchema(_NUMBER_OR_TEXT | {"maxLength": 63})]
Integer = Annotated[
    int, BeforeValidator(_bare(_integer, "a number")), WithJsonSchema({"type": "integer", "minimum": 0})
]
Positive = Annotated[
    int, BeforeValidator(_bare(_positive, "a number")), WithJsonSchema({"type": "integer", "minimum": 1})
]
Percent = Annotated[
    int, BeforeValidator(_bare(_percent, "a number")), WithJsonSchema({"type": "integer", "maximum": 1000})
]
Boolean = Annotated[bool, BeforeValidator(_bare(_boolean, "true or false")), WithJsonSchema({"type": "boolean"})]
Usd = Annotated[
    int,
    BeforeValidator(_words(_money)),
    WithJsonSchema(_NUMBER_OR_TEXT | {"pattern": r"^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$", "minimum": 0}),
]
Currency = Annotated[str, BeforeValidator(_words(_currency)), _string(r"^[A-Z]{3}$", "EUR")]
Permille = Annotated[int, BeforeValidator(_words(_permille)), WithJsonSchema(_NUMBER_OR_TEXT | {"exclusiveMinimum": 0})]
Size = Annotated[
    int,
    BeforeValidator(_words(_size)),
    WithJsonSchema(_NUMBER_OR_TEXT | {"pattern": r"^[0-9.]+([kMGTPE]|[KMGTPE]i)?B?$", "examples": ["40TB"]}),
]
Duration = Annotated[int, BeforeValidator(_words(_duration)), _string(r"^P[0-9WDTHMS]+$", "PT10M")]
Day = Annotated[date, BeforeValidator(_words(_date)), _string(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "2026-11-30")]
Country = Annotated[str, BeforeValidator(_words(_country)), _string(r"^[A-Z]{2}$", "DE")]
CountryOrSet = Annotated[str, BeforeValidator(_words(_country_or_set)), _string(r"^([A-Z]{2}|@[a-z0-9-]+)$", "@eu")]
WordOrSet = Annotated[str, BeforeValidator(_words(_word_or_set)), _string(r"^(@[a-z0-9-]+|[A-Za-z0-9._-]+)$", "@name")]
Instant = Annotated[
    datetime,
    BeforeValidator(_words(_instant)),
    _string(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$", "2026-11-30T00:00:00Z"),
]
Moment = Annotated[
    datetime, BeforeValidator(_words(_moment)), _string(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$", "2026-11-30")
]
Countries = Annotated[
    tuple[CountryOrSet, ...],
    BeforeValidator(_listed),
    WithJsonSchema(_one_or_more(r"^([A-Z]{2}|@[a-z0-9-]+)$")),
]
"""One country or set, or a list of them."""
Words = Annotated[
    tuple[WordOrSet, ...],
    BeforeValidator(_listed),
    WithJsonSchema(_one_or_more(r"^(@[a-z0-9-]+|[A-Za-z0-9._-]+)$")),
]
"""One word or set, or a list of them."""
TimeOfDay = Annotated[str, BeforeValidator(_words(_time_of_day)), _string(_TIME_OF_DAY.pattern, "22:00")]
TimeZone = Annotated[str, BeforeValidator(_words(_timezone)), _string(r"^[A-Za-z0-9_+/-]+$", "Europe/Berlin")]
ResourceName = Annotated[str, BeforeValidator(_words(_resource)), _string(r"^[A-Za-z0-9./_-]+$")]
Quantity = Annotated[str, BeforeValidator(_words(_quantity)), WithJsonSchema({"type": ["string", "number"]})]
EnumT = TypeVar("EnumT", bound=StrEnum)
Choice = Annotated[EnumT, BeforeValidator(_choice)]
