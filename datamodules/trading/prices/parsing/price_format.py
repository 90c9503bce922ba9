"""PriceFormat: settings for price files that can be read in more than one way, under the names pandas gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from datamodules.core.arguments import check_arguments
from datamodules.core.errors import ConfigurationError

ROLES = ("time", "clock", "open", "high", "low", "close", "adjusted", "volume", "symbol")
"""Columns of a price file; `clock` is the time of day if it has a column of its own."""

CHOICES: dict[str, tuple[object, ...]] = {
    "decimal": (None, ".", ","),
    "dayfirst": (None, True, False),
    "unit": (None, "s", "ms", "us", "ns"),
    "dropna": ("all", "any"),
}


@dataclass(frozen=True)
class PriceFormat:
    """Format of a price file; None: detected, and refused if the file leaves a doubt.

    Args:
        sep: separator of the columns, as for `pandas.read_csv`.
        decimal: decimal point, `.` or `,`.
        thousands: separator of thousands.
        dayfirst: whether 01/02/2020 is 1 February.
        date_format: format of the times, as for `datetime.strptime`.
        unit: unit of numeric times since 1970: s, ms, us or ns.
        columns: name or position, from 0, of columns by role (`ROLES`).
        encoding: encoding of the text.
        dropna: drop rows in which `all` prices are missing (default), or `any` of them; other gaps are refused.
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dayfirst: bool | None = None
    date_format: str | None = None
    unit: str | None = None
    columns: Mapping[str, str | int] = field(default_factory=dict)
    encoding: str | None = None
    dropna: str = "all"


def make_price_format(settings: Mapping[str, Any] | None) -> PriceFormat:
    """Return the format with these settings.

    Raises: ConfigurationError for an unknown setting, or a value that it does not take.
    """
    given, known = dict(settings or {}), [each.name for each in fields(PriceFormat)]
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(f"price_format has no setting {name!r}: choose from {', '.join(known)}.")
        if name in CHOICES and value not in CHOICES[name]:
            choices = ", ".join("null" if choice is None else str(choice) for choice in CHOICES[name])
            raise ConfigurationError(f"price_format.{name} is {value!r}: choose from {choices}.")
    check_arguments(PriceFormat, given, "the price file", "price_format.")
    for role in given.get("columns") or {}:
        if role not in ROLES:
            raise ConfigurationError(f"price_format.columns names {role!r}: choose from {', '.join(ROLES)}.")
    found = PriceFormat(**given | {"columns": dict(given.get("columns") or {})})
    if found.decimal is not None and found.decimal == found.thousands:
        raise ConfigurationError(f"price_format has {found.decimal!r} for both decimal and thousands: leave one out.")
    return found
