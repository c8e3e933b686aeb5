"""Signs in to NATS with an nkey seed or a `.creds` file.

nats-py would do it with the package nkeys, of which there are no wheels; PyNaCl has all that it needs.
"""

from __future__ import annotations

import base64
import binascii
import pathlib
import re

from nacl.signing import SigningKey
from nats.aio.client import Client

from cynode_workflow.errors import SettingError

# The first byte of a seed and of the public key of a user.
_SEED, _USER = 18 << 3, 20 << 3
_BLOCK = re.compile(r"-+BEGIN ([A-Z ]+)-+\s*([A-Za-z0-9_.=-]+)\s*-+END")


class KeyedClient(Client):
    """Authenticates with an nkey. The seed is read for each connection and never kept."""

    def __init__(self, creds_file: str | None, nkey_file: str | None) -> None:
        super().__init__()
        self._creds_file = creds_file
        self._nkey_file = nkey_file

    def _setup_nkeys_connect(self) -> None:
        if self._creds_file is not None:
            file = self._creds_file
            self._user_jwt_cb = lambda: bytearray(_creds(file)[0].encode())
            self._signature_cb = lambda nonce: _sign(_creds(file)[1], nonce)
        elif self._nkey_file is not None:
            file = self._nkey_file
            self._public_nkey = public_nkey(_seed(file))
            self._signature_cb = lambda nonce: _sign(_seed(file), nonce)


def public_nkey(seed: str) -> str:
    """Returns the public key of a user's seed, as NATS writes it."""
    raw = bytes([_USER]) + bytes(_key(seed).verify_key)
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _sign(seed: str, nonce: str) -> bytes:
    return base64.b64encode(_key(seed).sign(nonce.encode()).signature)


def _key(seed: str) -> SigningKey:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        raw = b""
    body, checksum = raw[:-2], raw[-2:]
    is_whole = len(body) == 34 and binascii.crc_hqx(body, 0).to_bytes(2, "little") == checksum
    if not is_whole or body[0] & 0xF8 != _SEED:
        raise SettingError("the credentials for NATS hold no valid nkey seed")
    return SigningKey(body[2:])


def _seed(file: str) -> str:
    return _read(file, "nats.nkey_file").strip()


def _creds(file: str) -> tuple[str, str]:
    blocks = dict(_BLOCK.findall(_read(file, "nats.creds_file")))
    try:
        return blocks["NATS USER JWT"], blocks["USER NKEY SEED"]
    except KeyError as missing:
        raise SettingError(f"{file} (nats.creds_file) has no block {missing}") from None


def _read(file: str, key: str) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"cannot read {file} ({key}): {error}") from None
