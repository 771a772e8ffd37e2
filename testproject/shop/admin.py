"""The shop in the admin."""

from __future__ import annotations

from django.contrib import admin

from .models import Customer, CustomerStatistics, Order, OrderLine, Product, SearchDocument, Tag


class LineInline(admin.TabularInline):  # type: ignore[type-arg]
    """An order's lines, below it."""

    model = OrderLine
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Orders with their derived totals."""

    list_display = ("id", "customer", "placed", "total")
    readonly_fields = ("total",)
    inlines = (LineInline,)


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Products and their tags."""

    list_display = ("name", "price")
    filter_horizontal = ("tags",)


admin.site.register([Customer, CustomerStatistics, OrderLine, SearchDocument, Tag])
