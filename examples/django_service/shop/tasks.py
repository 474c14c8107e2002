"""The tasks of the project: `docket worker --docket shop --tasks shop.tasks:tasks`.

A worker is a program of its own, so this module sets Django up before it imports models.
"""

import os

import django
from django.apps import apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
if not apps.ready:
    django.setup()

from django.db import close_old_connections

from shop.models import User


def send_welcome(user_id: int) -> str:
    """A plain function: a worker runs it in a thread, where Django's ORM may be used."""
    close_old_connections()
    user = User.objects.get(pk=user_id)
    user.welcomed = True
    user.save(update_fields=["welcomed"])
    return f"welcome, {user.email}"


tasks = [send_welcome]
