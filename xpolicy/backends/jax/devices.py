"""Devices of jax arrays, in the vocabulary that conditions use."""

from __future__ import annotations

import functools
from typing import Any

import jax


@functools.cache  # a process has a handful of devices, and they never change their kind
def _kind(device: Any) -> str:
    platform = str(device.platform)
    if platform != "gpu":
        return platform
    # jax calls every GPU "gpu"; its client says "cuda 12080" or "rocm 60400".
    version = str(getattr(device.client, "platform_version", ""))
    return "rocm" if "rocm" in version.lower() else "cuda"


def device_of(array: Any) -> str | None:
    """Return the kind of device that an array is on.

    Parameters
    ----------
    array : object
        Anything. An array that is spread over several devices has one kind.

    Returns
    -------
    str or None
        ``"cpu"``, ``"cuda"``, ``"rocm"``, ``"tpu"``, or the platform's own name; None for
        a tracer and for what is no jax array.
    """
    if isinstance(array, jax.ShapeDtypeStruct):
        return _kind_of_struct(array)
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return None
    return next((_kind(device) for device in array.devices()), None)


def _kind_of_struct(struct: jax.ShapeDtypeStruct) -> str | None:
    """Return where an array of this shape would be: where its sharding says, or by default."""
    if struct.sharding is not None:
        return next((_kind(device) for device in struct.sharding.device_set), None)
    return _kind(default_device())


def default_device() -> Any:
    """Return the device that arrays are on when nobody says where."""
    default = getattr(jax.config, "jax_default_device", None)
    return default if isinstance(default, jax.Device) else jax.devices(default)[0]
