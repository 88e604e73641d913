"""A real Home Assistant in one process, without its pages: run by the Python of its own virtual environment.

    python home_server.py FOLDER HTTP_PORT MQTT_PORT OWNTRACKS_TOPIC

Integrations: MQTT with discovery, OwnTracks over MQTT and by webhook. Says every state as a line of JSON. Tried with
homeassistant 2024.3.3 on Python 3.11, which needs beside itself: "josepy<2" paho-mqtt==1.6.1 PyNaCl numpy==1.26.4
PyTurboJPEG==1.7.1 janus==1.0.0 home-assistant-intents==2024.3.12 hassil==1.6.1 mutagen ha-ffmpeg==3.2.0
sqlalchemy==2.0.27 fnv-hash-fast==0.5.0 psutil-home-assistant==0.0.1 home-assistant-frontend==20240307.0
and with 2025.4.4 on Python 3.13: paho-mqtt==2.1.0 PyNaCl janus numpy home-assistant-frontend hassil mutagen ha-ffmpeg
home-assistant-intents PyTurboJPEG. Its own connection is MQTT 5.
"""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

HOOK, SECRET = "veilhook", "correct horse"


def prepare(folder: Path, mqtt_port: int) -> None:
    """The entries that its pages would have made."""
    entries = {
        "mqtt": {"broker": "127.0.0.1", "port": mqtt_port, "discovery": True, "protocol": "5"},
        "owntracks": {"webhook_id": HOOK, "cloudhook": False, "secret": SECRET},
    }
    made = [
        {
            "entry_id": domain,
            "version": 1,
            "minor_version": 1,
            "domain": domain,
            "title": domain,
            "data": data,
            "options": {},
            "pref_disable_new_entities": False,
            "pref_disable_polling": False,
            "source": "user",
            "unique_id": None,
            "disabled_by": None,
        }
        for domain, data in entries.items()
    ]
    store = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": made}}
    place = folder / ".storage" / "core.config_entries"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(store))
        (folder / "configuration.yaml").touch()


def say(what: str, **more) -> None:
    print(json.dumps({"what": what, **more}, default=str), flush=True)


async def main(folder: Path, http_port: int, topic: str) -> None:
    from homeassistant import bootstrap, config, config_entries, loader
    from homeassistant.core import HomeAssistant, callback
    from homeassistant.setup import async_setup_component

    hass = HomeAssistant(str(folder))
    hass.config.skip_pip = True
    loader.async_setup(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    process = getattr(config, "async_process_ha_core_config", None)
    if process is None:  # since 2024.11
        from homeassistant.core_config import async_process_ha_core_config as process
    await process(hass, {"time_zone": "UTC", "latitude": 39.9, "longitude": 116.3})

    @callback
    def changed(event) -> None:
        new = event.data["new_state"]
        if new is not None:
            say("state", entity=new.entity_id, state=new.state, attributes=dict(new.attributes))

    hass.bus.async_listen("state_changed", changed)
    parts = {
        "homeassistant": {},
        "http": {"server_host": ["127.0.0.1"], "server_port": http_port},
        "mqtt": {},
        "owntracks": {"mqtt_topic": topic},
    }
    for name, chosen in parts.items():
        say("part", name=name, ok=await async_setup_component(hass, name, {name: chosen}))
    await hass.async_start()
    await hass.async_block_till_done()
    say("ready")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await hass.async_stop(force=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    at, http, mqtt, owntracks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    prepare(at, mqtt)
    asyncio.run(main(at, http, owntracks))
