"""What the user asked of the server. Pure."""

import ipaddress
from dataclasses import dataclass

from strata.core.errors import UsageError
from strata.plan.setting import flag_of, setting, settings_of


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address, access and limits of the HTTP side."""

    host: str = setting("127.0.0.1", "Address to listen on; anything but loopback needs --api-key or --insecure.")
    port: int = setting(8080, "Port to listen on, 0 = a free one.", kind="integer", low=0, high=65535)
    api_key: str | None = setting(None, "Key that clients must send.", absent="none")
    insecure: bool = setting(False, "Allow a wider bind without a key.", kind="switch")
    allow_origin: str = setting("", "Web origins (comma-separated) that may call the server from a browser.")
    alias: str | None = setting(
        None,
        "The models' names for clients, comma-separated in the order of the models; file = the files' names.",
        absent="file",
        aliases=("model_name",),
    )
    idle_unload: float = setting(
        0.0,
        "Seconds without a request after which the model is unloaded, the next request loads it again; 0 = never.",
        kind="number",
        low=0.0,
        high=1e9,
    )
    drain_seconds: float = setting(
        20.0,
        "Seconds that running answers have to come to their end after SIGTERM; a second signal ends them at once.",
        kind="number",
        low=0.0,
        high=86_400.0,
    )
    body_mib: int = setting(32, "Largest request body in MiB.", kind="integer", low=1, high=4096)
    keep_alive_s: float = setting(
        5.0, "Seconds of silence after which a stream gets a comment line.", kind="number", low=0.05, high=3600.0
    )

    def __post_init__(self) -> None:
        for name, rule in settings_of(type(self)).items():
            rule.check(getattr(self, name), flag_of(name))
        if self.api_key == "":
            raise UsageError("--api-key: expected a key, found an empty one")
        if not self.loopback and self.api_key is None and not self.insecure:
            raise UsageError(
                f"--host {self.host}: a bind beyond this machine without a key is refused",
                hint="add --api-key KEY, or --insecure where everybody on the network may use it",
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def origins(self) -> frozenset[str]:
        """The allowed web origins."""
        return frozenset(o.strip().rstrip("/").lower() for o in self.allow_origin.split(",") if o.strip())
