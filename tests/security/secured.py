"""One Kafka node with every kind of secured listener, its certificates and its users.

The authorizer is on: a principal may do only what the rights of its role allow. The PLAINTEXT
listener exists for the readiness probe and for the tests' own administration; unlike in a
production cluster, its clients are super users.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from foldlog.local.kafka import Broker, PortTaken
from foldlog.local.kafka.ports import free_pair
from foldlog.local.kafka.temporary import temporary_directory
from foldlog.log.access import ROLES, Resource, grants

USERS = (*ROLES, "nobody")
"""A user for each role, and one without rights."""

_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_PORT_TRIES = 5


def password_of(user: str) -> str:
    """The password of a user. It differs from the name, so that a test can search output for it."""
    return f"pw-of-{user}-Zk9"


@dataclass(frozen=True, kw_only=True)
class Secured:
    """A running node: the addresses of its listeners, and the client properties for each
    listener."""

    broker: Broker
    plaintext: str
    sasl_plaintext: str
    sasl_ssl: str
    mtls: str
    tls: Path

    def grant(self, topic_prefix: str) -> None:
        """Give every role exactly the rights in its row of the table, on the topics with this
        prefix."""
        wanted = [
            AclBinding(
                ResourceType.TOPIC if grant.resource is Resource.TOPIC else ResourceType.GROUP,
                grant.name,
                ResourcePatternType.LITERAL
                if grant.resource is Resource.TOPIC
                else ResourcePatternType.PREFIXED,
                f"User:{role}",
                "*",
                AclOperation[grant.right],
                AclPermissionType.ALLOW,
            )
            for role in ROLES
            for grant in grants(role, topic_prefix)
        ]
        admin = AdminClient({"bootstrap.servers": self.plaintext})
        for answer in list(admin.create_acls(wanted).values()):
            answer.result(10)

    def scram(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Client properties for SASL_SSL with a password."""
        return {
            "bootstrap.servers": self.sasl_ssl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.tls / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def sasl(self, user: str, mechanism: str) -> dict[str, str]:
        """Client properties for SASL_PLAINTEXT with a password."""
        return {
            "bootstrap.servers": self.sasl_plaintext,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def certificate(self, user: str) -> dict[str, str]:
        """Client properties for mutual TLS."""
        return {
            "bootstrap.servers": self.mtls,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.tls / "ca.pem"),
            "ssl.certificate.location": str(self.tls / f"{user}.pem"),
            "ssl.key.location": str(self.tls / f"{user}.pem"),
        }

    def oauth(self, token_endpoint: str, user: str) -> dict[str, str]:
        """Client properties for OAUTHBEARER with an OIDC token endpoint."""
        return {
            "bootstrap.servers": self.sasl_ssl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.tls / "ca.pem"),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": token_endpoint,
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": password_of(user),
        }


@contextmanager
def secured_broker(cache_dir: Path) -> Iterator[Secured]:
    """Run the node, in a new directory that is deleted when the block ends."""
    with temporary_directory() as directory, _secured_in(directory, cache_dir) as secured:
        yield secured


@contextmanager
def _secured_in(directory: Path, cache_dir: Path) -> Iterator[Secured]:
    broker = None
    try:
        make_certificates(directory / "tls")
        for attempt in range(_PORT_TRIES):
            first, second, third = (free_pair() for _ in range(3))
            broker = Broker(
                dir=directory,
                cache_dir=cache_dir,
                port=first,
                properties=_properties(first, second, third),
                tied=True,
            )
            try:
                broker.up()
                break
            except PortTaken:
                if attempt == _PORT_TRIES - 1:
                    raise
        plaintext = f"127.0.0.1:{first}"
        _add_users(plaintext)
        yield Secured(
            broker=broker,
            plaintext=plaintext,
            sasl_plaintext=f"127.0.0.1:{second}",
            sasl_ssl=f"127.0.0.1:{second + 1}",
            mtls=f"127.0.0.1:{third}",
            tls=directory / "tls",
        )
    finally:
        if broker is not None:
            broker.kill()


def _properties(port: int, second: int, third: int) -> dict[str, str]:
    at = {
        "PLAINTEXT": port,
        "CONTROLLER": port + 1,
        "SP": second,
        "SS": second + 1,
        "MTLS": third,
    }
    protocols = {"SP": "SASL_PLAINTEXT", "SS": "SASL_SSL", "MTLS": "SSL"}
    listeners = ",".join(f"{name}://127.0.0.1:{number}" for name, number in at.items())
    users = " ".join(f'user_{name}="{password_of(name)}"' for name in USERS)
    security = "org.apache.kafka.common.security"
    plain = f"{security}.plain.PlainLoginModule required {users};"
    scram = f"{security}.scram.ScramLoginModule required;"
    oauth = f"{security}.oauthbearer.OAuthBearerLoginModule required;"
    found = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'PLAINTEXT')}" for name in at
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "tls/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "tls/ca.pem",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }
    for name in ("sp", "ss"):
        jaas = {
            "plain": plain,
            "scram-sha-256": scram,
            "scram-sha-512": scram,
            "oauthbearer": oauth,
        }
        for mechanism, config in jaas.items():
            found[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = config
    return found


def _add_users(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for mechanism in _SCRAM:  # a request may name a user once
        wanted = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password_of(user).encode()
            )
            for user in USERS
        ]
        for answer in list(admin.alter_user_scram_credentials(wanted).values()):
            answer.result(10)


# ---- certificates


def make_certificates(directory: Path) -> None:
    """Make a CA, a certificate for the broker and one for each user, as PEM files."""
    directory.mkdir(mode=0o700)
    ca_key, ca = _certificate("foldlog test CA")
    (directory / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    for name in ("broker", *USERS):
        key, found = _certificate(name, (ca_key, ca))
        (directory / f"{name}.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + found.public_bytes(serialization.Encoding.PEM)
            + ca.public_bytes(serialization.Encoding.PEM)
        )


_Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _certificate(name: str, signer: _Signer | None = None) -> _Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[1].subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
    )
    return key, builder.sign(signer[0] if signer else key, hashes.SHA256())
