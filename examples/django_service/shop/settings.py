"""The settings of the project."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", "shop.sqlite3")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DOCKET_NAME = "shop"
DOCKET_URL = os.environ.get("DOCKET_URL", "redis://localhost:6379/0")
