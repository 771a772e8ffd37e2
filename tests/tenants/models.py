"""Tenants, as django-tenants wants them."""

from __future__ import annotations

from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):  # type: ignore[misc]
    """Who has a schema."""


class Domain(DomainMixin):  # type: ignore[misc]
    """Where a customer's site is."""
