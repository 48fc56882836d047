"""When an X.509 certificate ends. The standard library decodes no certificate that it does not itself talk to."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_SEQUENCE, _CONTEXT_0 = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def not_after(pem: bytes) -> datetime | None:
    """notAfter of the earliest-ending certificate of a PEM text; None when there is none that can be read."""
    text = pem.decode("ascii", "replace")
    ends = []
    for block in text.split(_BEGIN)[1:]:
        body, found, _ = block.partition(_END)
        if not found:
            continue
        try:
            ends.append(_end_of(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}")))
        except (ValueError, IndexError):
            continue
    return min(ends, default=None)


def _end_of(der: bytes) -> datetime:
    """RFC 5280: Certificate { TBSCertificate { [0] version, serial, algorithm, issuer, Validity { from, to }, ..."""
    _, certificate, _ = _element(der, _SEQUENCE)
    _, rest, _ = _element(certificate, _SEQUENCE)
    if rest[:1] == bytes([_CONTEXT_0]):
        _, _, rest = _element(rest)
    for _ in range(3):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest, _SEQUENCE)
    _, _, rest = _element(validity)
    kind, value, _ = _element(rest)
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(kind)
    if form is None:
        raise ValueError("not a time")
    return datetime.strptime(value.decode("ascii"), form).replace(tzinfo=UTC)


def _element(data: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """(tag, content, what follows). Raises ValueError or IndexError on anything else."""
    tag, length, at = data[0], data[1], 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
    if (wanted is not None and tag != wanted) or at + length > len(data):
        raise ValueError("not the element expected")
    return tag, data[at : at + length], data[at + length :]
