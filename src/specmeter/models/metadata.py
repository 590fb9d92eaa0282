"""Typed look-ups in the metadata of a GGUF header.

A key that is missing or has another type than expected is None: what a file does not say is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from specmeter.models.gguf_header import Header, NumberArray, StringArray


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of one header; a key that begins with a dot is completed by the architecture's name."""

    header: Header

    @property
    def architecture(self) -> str | None:
        """`general.architecture`: llama.cpp's name for the kind of network."""
        return self.text("general.architecture")

    def _get(self, key: str) -> object:
        return self.header.metadata.get(f"{self.architecture}{key}" if key.startswith(".") else key)

    def text(self, key: str) -> str | None:
        """The value of a string key."""
        value = self._get(key)
        return value if isinstance(value, str) else None

    def flag(self, key: str) -> bool | None:
        """The value of a boolean key."""
        value = self._get(key)
        return value if isinstance(value, bool) else None

    def integer(self, key: str) -> int | None:
        """The value of an integer key; None when it is negative."""
        value = self._get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def strings(self, key: str) -> StringArray | None:
        """An array of strings."""
        value = self._get(key)
        return value if isinstance(value, StringArray) else None

    def numbers(self, key: str) -> NumberArray | None:
        """An array of numbers or booleans."""
        value = self._get(key)
        return value if isinstance(value, NumberArray) else None

    def per_layer(self, key: str, layers: int) -> list[int] | None:
        """One value for each of `layers` layers, from an array or from one number that holds for all of them."""
        single = self.integer(key)
        if single is not None:
            return [single] * layers
        array = self.numbers(key)
        if array is None or array.code in "fd" or len(array) < layers:
            return None
        values = [int(value) for value in array.values()[:layers] if value >= 0]
        return values if len(values) == layers else None
