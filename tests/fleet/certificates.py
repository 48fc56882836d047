"""Certificates of one fleet: a throwaway CA and one serving pair for the loopback address.

The worker kubeconfigs carry the CA as data because Kueue refuses to talk to a cluster that it cannot verify.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY_DAYS = 30
CLOCK_SKEW_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the fleet's keys; `folder` holds tls.crt and tls.key as webhook servers want them."""

    folder: Path
    ca_pem: bytes

    @property
    def serving_certificate(self) -> Path:
        """The certificate that apiservers and webhooks show."""
        return self.folder / "tls.crt"

    @property
    def serving_key(self) -> Path:
        """Its private key."""
        return self.folder / "tls.key"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service account tokens."""
        return self.folder / "service-account.key"

    @property
    def service_account_public_key(self) -> Path:
        """The public half, with which the apiservers check them."""
        return self.folder / "service-account.pub"


def issue(folder: Path) -> Certificates:
    """Make new keys in `folder`. The CA's own key is never written: nothing else will be signed."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _ca_certificate(ca_key)
    serving_key = ec.generate_private_key(ec.SECP256R1())
    serving = _serving_certificate(ca, ca_key, serving_key)
    service_account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    certificates = Certificates(folder, ca.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.crt").write_bytes(certificates.ca_pem)
    certificates.serving_certificate.write_bytes(serving.public_bytes(serialization.Encoding.PEM))
    _write_secret(certificates.serving_key, _private_pem(serving_key))
    _write_secret(certificates.service_account_key, _private_pem(service_account_key))
    certificates.service_account_public_key.write_bytes(
        service_account_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return certificates


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes) -> None:
    """Readable by the owner only, from the first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)


def _builder(subject: str, issuer: str) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=CLOCK_SKEW_MINUTES))
        .not_valid_after(now + datetime.timedelta(days=VALIDITY_DAYS))
    )


def _ca_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder("entrepot-local-fleet-ca", "entrepot-local-fleet-ca")
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _serving_certificate(
    ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
    ]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder("entrepot-local-fleet", "entrepot-local-fleet-ca")
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
