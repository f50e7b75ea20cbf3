# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.desk.identity.guard import Proxy as Proxy
from holdfast.desk.identity.oidc import OIDC as OIDC
from holdfast.desk.identity.protection import Limits as Limits
from holdfast.desk.identity.tokens import (
    Identity as Identity,
    May as May,
    Role as Role,
    Tokens as Tokens,
)
from holdfast.desk.server import (
    desk_app as desk_app,
    desk_url as desk_url,
)
