"""Which perturbation answers a request, written as SGLang's cache namespace.

Namespace and perturbation are one text, so that they cannot disagree: a prefix that was computed under one
seed, sign, sigma or version is never matched under another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from seedbed_server.noise import check_seed

__all__ = ["UNPERTURBED", "Address", "AddressError", "Namespace", "check_address"]

_SCHEME = "sb1"


class AddressError(ValueError):
    """An address that means no perturbation; the message names the field, the value and the remedy."""


@dataclass(frozen=True)
class Address:
    """The perturbation theta + sigma eps(seed). A sigma of 0 is the unperturbed live model."""

    seed: int
    sigma: float


UNPERTURBED = Address(0, 0.0)


def check_address(seed: int, sigma: float) -> Address:
    """The address of a perturbation that came from outside. Raises AddressError."""
    try:
        check_seed(seed)
    except ValueError as error:
        raise AddressError(str(error)) from None
    if not math.isfinite(sigma):
        raise AddressError(f"sigma: {sigma} is not a finite number; use a small one such as 0.005")
    if sigma == 0:
        raise AddressError(
            "sigma: 0 perturbs nothing; leave the address out to ask the unperturbed live model"
        )
    if abs(sigma) > 1e3 or abs(sigma) < 1e-30:
        raise AddressError(f"sigma: {sigma} is outside 1e-30 to 1000; use a small one such as 0.005")
    return Address(seed, sigma)


@dataclass(frozen=True)
class Namespace:
    """An address within one epoch of the weights."""

    epoch: int
    address: Address

    def __str__(self) -> str:
        return f"{_SCHEME}|{self.epoch}|{self.address.seed}|{self.address.sigma.hex()}"

    @classmethod
    def parse(cls, text: str | None) -> Namespace:
        """Reads SGLang's `extra_key`; none at all is the unperturbed model of no epoch.

        Raises AddressError for any other text that `str` did not write.
        """
        if not text:
            return cls(0, UNPERTURBED)
        parts = text.split("|")
        try:
            if len(parts) != 4 or parts[0] != _SCHEME:
                raise ValueError
            parsed = cls(int(parts[1]), Address(check_seed(int(parts[2])), float.fromhex(parts[3])))
            if str(parsed) != text or not math.isfinite(parsed.address.sigma):
                raise ValueError
        except ValueError:
            raise AddressError(
                f"extra_key: {text!r} is no namespace of ours; leave it to the engine, which sets it"
            ) from None
        return parsed

    def at(self, epoch: int) -> Namespace:
        """The same address in another epoch."""
        return Namespace(epoch, self.address)
