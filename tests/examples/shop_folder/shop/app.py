"""The docket of the shop, as docs/cli.md shows it."""

import os

from docket import Docket
from shop.tasks import tasks

docket = Docket("shop", url=os.environ["DOCKET_URL"])
for function in tasks:
    docket.register(function)
