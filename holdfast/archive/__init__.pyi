# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.archive.archive import Archive as Archive
from holdfast.archive.encryption.keys import (
    KeyService as KeyService,
    Keys as Keys,
    hashed as hashed,
)
