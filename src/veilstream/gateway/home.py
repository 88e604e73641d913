"""Home Assistant: MQTT discovery and the state of every stream, from releases alone.

    PREFIX/device_tracker/veil_ID/config    places: latitude, longitude, gps_accuracy
                                            names of zones: in_zones, and for older ones the state
    PREFIX/sensor/veil_ID/config            values, with unit and device class
    PREFIX/sensor/veil_ID_bits/config       leaked bits so far, and the ceiling (diagnostic)
    PREFIX/veil/ID                          the state all of them read
    PREFIX/veil/ID/zone                     the name of a zone alone

All retained, so that whichever side restarts finds them. ID is a hash: a stream's name is the name of its device and in
no topic; templates are constants. A stream is announced with its first release of a session.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import veilstream
from veilstream.data.zones import AWAY
from veilstream.errors import InputError
from veilstream.gateway.records import Key, Outgoing, Told
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Release, decode, encode

ID_DIGITS = 16
CLASSES = {
    "power": ("mW", "W", "kW", "MW", "GW"),
    "energy": ("Wh", "kWh", "MWh", "GWh", "MJ", "GJ"),
    "temperature": ("°C", "°F", "K"),
    "distance": ("mm", "cm", "m", "km", "mi"),
    "speed": ("m/s", "km/h", "mph"),
    "weight": ("g", "kg", "lb"),
    "voltage": ("mV", "V"),
    "current": ("mA", "A"),
    "pressure": ("Pa", "hPa", "kPa", "bar", "mbar"),
    "volume": ("L", "mL", "m³"),
}  # kinds of sensor and the units they may have; of others nothing is said
PLACE, VALUE = "{{ value_json.place | tojson }}", "{{ value_json.value }}"
ZONES = "{{ value_json.zones | tojson }}"
BITS, LIMIT = "{{ value_json.bits.leaked_bits }}", "{{ value_json.bits | tojson }}"


class Home:
    """What is published for Home Assistant. An outlet, whose messages an MQTT gateway sends."""

    def __init__(self, spaces: Mapping[str, Space], status_topic: str, prefix: str = "homeassistant") -> None:
        if not status_topic:
            raise InputError("`homeassistant` needs a `status_topic`: it says whether the gateway is there")
        if not prefix or not prefix.isprintable() or "+" in prefix or "#" in prefix:
            raise InputError(f"`discovery_prefix` must be a topic without wildcards, found {prefix!r}")
        self.spaces, self.status_topic, self.prefix = spaces, status_topic, prefix
        self._announced: set[Key] = set()
        self._just_now: set[Key] = set()  # not yet committed
        self.sends: Callable[[], None] = lambda: None  # wakes who sends it

    def owns(self, topic: str) -> bool:
        return topic.startswith(self.prefix + "/")

    def forget(self) -> None:
        """A new session: the broker may have lost what was announced."""
        self._announced = set()

    def wake(self) -> None:
        self._announced |= self._just_now
        self.sends()

    def compose(self, told: Sequence[Told]) -> list[Outgoing]:
        """The last state of every stream; those not yet announced are."""
        last = {s.key: message for s, message in told if message is not None}
        self._just_now = last.keys() - self._announced
        out: list[Outgoing] = []
        for key, message in last.items():
            release = decode(message)
            out += self.announcement(key) if key in self._just_now else []
            space, at = self.spaces[key[0]], self._state_topic(key)
            out.append((key[1], at, encode(self.state(space, release))))
            if space.says_zones:  # by itself: older ones take the whole message for a name
                out.append((key[1], f"{at}/zone", str(release.released).encode()))
        return out

    def state(self, space: Space, release: Release) -> dict[str, Any]:
        bits = {"leaked_bits": release.leaked_bits, "ceiling_bits": space.ceiling}
        if space.says_zones:  # newer ones look at this list, and find a zone by its name
            return {"zones": {"in_zones": [z for z in [release.released] if z != AWAY]}, "bits": bits}
        if release.lat is None:
            return {"value": release.released, "bits": bits}
        place = {"latitude": release.lat, "longitude": release.lon, "gps_accuracy": space.encoder.accuracy(release)}
        return {"place": place, "bits": bits}

    def announcement(self, key: Key) -> list[Outgoing]:
        space, me = self.spaces[key[0]], f"veil_{self._id(key)}"
        name = key[1] if space.finer is None else f"{key[1]} ({key[0]})"  # a device for each audience
        common = {
            "availability_topic": self.status_topic,
            "device": {"identifiers": [me], "name": name, "manufacturer": "veilstream", "model": "released stream"},
            "origin": {"name": "veilstream", "sw_version": veilstream.__version__},
        }
        at, own = self._state_topic(key), dict[str, Any]()
        if space.says_zones:
            kind, own = "device_tracker", {"state_topic": f"{at}/zone", "payload_not_home": AWAY, "source_type": "gps"}
            own |= {"json_attributes_topic": at, "json_attributes_template": ZONES}
        elif space.points is not None and space.points.is_map:
            kind = "device_tracker"
            own = {"json_attributes_topic": at, "json_attributes_template": PLACE, "source_type": "gps"}
        else:
            kind, own = "sensor", {"state_topic": at, "value_template": VALUE, **_unit(space)}
        bits = {
            "name": "Leaked bits",
            "unique_id": f"{me}_bits",
            "entity_category": "diagnostic",
            "icon": "mdi:incognito",
            "state_topic": at,
            "value_template": BITS,
            "json_attributes_topic": at,
            "json_attributes_template": LIMIT,
            "unit_of_measurement": "bit",
            "state_class": "total_increasing",
            "suggested_display_precision": 2,
        }
        return [
            (key[1], f"{self.prefix}/{kind}/{me}/config", encode({"name": None, "unique_id": me, **own, **common})),
            (key[1], f"{self.prefix}/sensor/{me}_bits/config", encode({**bits, **common})),
        ]

    def _state_topic(self, key: Key) -> str:
        return f"{self.prefix}/veil/{self._id(key)}"

    def _id(self, key: Key) -> str:
        """Of a stream of this gateway, the same for ever; the status topic tells gateways apart."""
        return hashlib.sha256("\0".join((self.status_topic, *key)).encode()).hexdigest()[:ID_DIGITS]


def _unit(space: Space) -> dict[str, str]:
    unit = "" if space.points is None else space.points.unit
    found = {"unit_of_measurement": unit} if unit else {}
    kind = next((name for name, units in CLASSES.items() if unit in units), None)
    found |= {} if kind is None else {"device_class": kind}
    return found if kind == "energy" else {**found, "state_class": "measurement"}  # a meter's total is another thing
