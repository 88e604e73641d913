"""The accounts of examples/gateway/nats.conf, word for word (a test compares), so that the drill runs under them."""

from collections.abc import Collection

from veilstream.gateway.nats.client import INBOX, Link, LinkSettings

PASSWORDS = {f"{user.upper()}_PASSWORD": f"{user}-password" for user in ("gate", "device", "service")}  # on loopback
ACCOUNTS = """\
accounts {
  GATEWAY: {
    jetstream: enabled
    users: [ { user: gate, password: $GATE_PASSWORD, permissions: {
      publish: ["$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.MSG.GET.*",
                "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.CREATE.*.*", "$JS.API.CONSUMER.MSG.NEXT.veil-readings.*",
                "$JS.ACK.veil-readings.>", "$KV.veil-memory.>", "veil.out.*.*", "veil.unhandled", "veil.workers",
                "_INBOX.>", "_R_.>"]
      subscribe: ["_VEIL.>", "veil.workers", "veil.status"] } } ]
    exports: [
      { service: "veil.in.*.*", accounts: [DEVICES] }
      { stream: "veil.out.*.*", accounts: [SERVICE] }
      { service: "veil.status", response_type: stream, accounts: [SERVICE] }
      { service: "$JS.API.CONSUMER.MSG.NEXT.veil-releases.service", response_type: stream, accounts: [SERVICE] }
      { service: "$JS.ACK.veil-releases.service.>", accounts: [SERVICE] }
    ]
  }
  DEVICES: {
    users: [ { user: device, password: $DEVICE_PASSWORD, permissions: {
      publish: ["veil.in.*.*"]
      subscribe: ["_INBOX.device.>"] } } ]
    imports: [
      { service: { account: GATEWAY, subject: "veil.in.*.*" } }
    ]
  }
  SERVICE: {
    users: [ { user: service, password: $SERVICE_PASSWORD, permissions: {
      publish: ["veil.status", "$JS.API.CONSUMER.MSG.NEXT.veil-releases.service", "$JS.ACK.veil-releases.service.>"]
      subscribe: ["_INBOX.service.>", "veil.out.*.*"] } } ]
    imports: [
      { stream: { account: GATEWAY, subject: "veil.out.*.*" } }
      { service: { account: GATEWAY, subject: "veil.status" } }
      { service: { account: GATEWAY, subject: "$JS.API.CONSUMER.MSG.NEXT.veil-releases.service" } }
      { service: { account: GATEWAY, subject: "$JS.ACK.veil-releases.service.>" } }
    ]
  }
}
"""


def accounts() -> str:
    """With the passwords written in."""
    text = ACCOUNTS
    for name, password in PASSWORDS.items():
        text = text.replace(f"${name}", f'"{password}"')
    return text


def settings(urls: Collection[str], user: str) -> LinkSettings:
    """As one of the users; `gate` is the workers'."""
    inbox = INBOX if user == "gate" else f"_INBOX.{user}"
    return LinkSettings(tuple(urls), user=user, password=PASSWORDS[f"{user.upper()}_PASSWORD"], inbox=inbox)


async def as_user(urls: Collection[str], user: str) -> Link:
    return await Link.open(settings(urls, user))
