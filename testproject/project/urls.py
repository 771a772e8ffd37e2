"""URLs of the shop: the admin, at the root."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("", admin.site.urls)]
