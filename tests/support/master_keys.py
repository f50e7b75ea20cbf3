"""Master keys for tests."""

import base64

from holdfast.archive.encryption.keys import Keys

K1, K2 = b"1" * 32, b"2" * 32
LINE = f"k1 {base64.b64encode(K1).decode()}"


def keys(**named: bytes) -> Keys:
    return Keys(named or {"k1": K1})
