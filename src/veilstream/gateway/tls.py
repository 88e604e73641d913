"""Encrypted connections to a broker or a NATS server."""

import ssl
from dataclasses import dataclass, field

from veilstream.errors import InputError


@dataclass(frozen=True)
class Tls:
    """Files, which must be readable; without an authority of its own the system's ones are trusted."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.context()

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"the TLS files cannot be used: {error.strerror}") from None
        return context
