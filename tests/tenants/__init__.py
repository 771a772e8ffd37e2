"""A site of django-tenants on PostgreSQL: one schema a tenant, one Redis for all."""
