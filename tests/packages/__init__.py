"""``@recheck`` on the models and signals of packages that others wrote."""
