"""The tables of the project."""

from django.db import models


class User(models.Model):
    email = models.EmailField(unique=True)
    welcomed = models.BooleanField(default=False)
