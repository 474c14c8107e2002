"""The docket of the project, one per process. It opens when it is first used."""

from django.conf import settings

from docket.sync import Docket

docket = Docket(name=settings.DOCKET_NAME, url=settings.DOCKET_URL)
